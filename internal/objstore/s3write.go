package objstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

const (
	minPart  = 5 << 20 // S3 refuses smaller parts but the last
	maxParts = 10_000
)

// write puts a small or conditional object by one request, and uploads others in parts.
// The parts are read from the file when they are sent: no buffer holds one.
func (v *s3Store) write(ctx context.Context, key string, w write) error {
	sum, algorithm := v.sum(w.crc)
	if w.is == nil && w.size > max(v.opts.PartBytes, minPart) {
		part := max(v.opts.PartBytes, minPart, (w.size+maxParts-1)/maxParts)
		return v.multipart(ctx, key, sum, w.size, part, func(ctx context.Context, id string, n int32, off, size int64) (types.CompletedPart, error) {
			out, err := v.client.UploadPart(ctx, &s3.UploadPartInput{
				Bucket: &v.bucket, Key: &key, UploadId: &id, PartNumber: &n, ChecksumAlgorithm: algorithm,
				Body: io.NewSectionReader(w.body, off, size), ContentLength: &size,
			})
			if err != nil {
				return types.CompletedPart{}, err
			}
			return types.CompletedPart{PartNumber: &n, ETag: out.ETag, ChecksumCRC32C: out.ChecksumCRC32C}, nil
		})
	}
	in := &s3.PutObjectInput{
		Bucket: &v.bucket, Key: &key, ChecksumAlgorithm: algorithm, ChecksumCRC32C: sum,
		Body: io.NewSectionReader(w.body, 0, w.size), ContentLength: &w.size, ContentType: aws.String(contentType(key)),
	}
	if w.put != "" {
		in.Metadata = map[string]string{putKey: w.put}
	}
	if w.is != nil && *w.is == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = w.is
	}
	_, err := v.client.PutObject(ctx, in)
	return err
}

// sum is a CRC-32C as S3 wants it.
func (v *s3Store) sum(crc uint32) (*string, types.ChecksumAlgorithm) {
	if v.plain {
		return nil, ""
	}
	text := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
	return &text, types.ChecksumAlgorithmCrc32c
}

// multipart makes an object of parts, several at once. It is complete only after the
// last request, which declares its size and sum; before, it is aborted if anything fails.
func (v *s3Store) multipart(ctx context.Context, key string, sum *string, size, part int64,
	send func(ctx context.Context, id string, n int32, off, size int64) (types.CompletedPart, error)) (err error) {
	begin := &s3.CreateMultipartUploadInput{Bucket: &v.bucket, Key: &key, ContentType: aws.String(contentType(key))}
	end := &s3.CompleteMultipartUploadInput{Bucket: &v.bucket, Key: &key, MpuObjectSize: &size, ChecksumCRC32C: sum}
	if sum != nil {
		begin.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
		begin.ChecksumType, end.ChecksumType = types.ChecksumTypeFullObject, types.ChecksumTypeFullObject
	}
	begun, err := v.client.CreateMultipartUpload(ctx, begin)
	if err != nil {
		return err
	}
	end.UploadId = begun.UploadId
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = v.abort(ctx, key, *begun.UploadId) // what stays is found by Uploads
	}()
	parts := make([]types.CompletedPart, (size+part-1)/part)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(v.opts.Concurrency)
	for i := range parts {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			off := int64(i) * part
			parts[i], err = send(gctx, *begun.UploadId, int32(i+1), off, min(part, size-off))
			return err
		})
	}
	if err := errors.Join(g.Wait(), context.Cause(ctx)); err != nil {
		return err
	}
	end.MultipartUpload = &types.CompletedMultipartUpload{Parts: parts}
	_, err = v.client.CompleteMultipartUpload(ctx, end)
	return err
}

// copyFrom copies by one request, or by one for each GiB of an object too large for that.
func (v *s3Store) copyFrom(ctx context.Context, bucket, srcKey, dstKey string, src state) error {
	from := strings.ReplaceAll(url.QueryEscape(bucket+"/"+srcKey), "+", "%20")
	if src.size <= v.copies {
		_, err := v.client.CopyObject(ctx, &s3.CopyObjectInput{
			Bucket: &v.bucket, Key: &dstKey, CopySource: &from, CopySourceIfMatch: &src.version,
		})
		return err
	}
	var sum *string
	if src.summed {
		sum, _ = v.sum(src.crc)
	}
	part := max(v.copies/5, (src.size+maxParts-1)/maxParts)
	return v.multipart(ctx, dstKey, sum, src.size, part, func(ctx context.Context, id string, n int32, off, size int64) (types.CompletedPart, error) {
		out, err := v.client.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
			Bucket: &v.bucket, Key: &dstKey, UploadId: &id, PartNumber: &n,
			CopySource: &from, CopySourceIfMatch: &src.version,
			CopySourceRange: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+size-1)),
		})
		if err != nil {
			return types.CompletedPart{}, err
		}
		return types.CompletedPart{PartNumber: &n, ETag: out.CopyPartResult.ETag, ChecksumCRC32C: out.CopyPartResult.ChecksumCRC32C}, nil
	})
}
