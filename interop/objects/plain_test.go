//go:build objects

package objects_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
	"golang.org/x/sync/errgroup"
)

// plainBucket is a bucket as the store's library has it without further ado.
func plainBucket(t testing.TB, url string) *blob.Bucket {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle, o.BaseEndpoint = true, aws.String(url)
		o.DisableLogOutputChecksumValidationSkipped = true // of ranges
	})
	b, err := s3blob.OpenBucket(t.Context(), client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// plainCopy reads an object and keeps nothing of it.
func plainCopy(ctx context.Context, b *blob.Bucket, key string) error {
	r, err := b.NewReader(ctx, key, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

// rangesCopy does the same by ranges, as many and as large at once as hsx asks for.
func rangesCopy(ctx context.Context, b *blob.Bucket, key string, size int64) error {
	const part, atOnce = 4 << 20, 16
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for off := int64(0); off < size; off += part {
		g.Go(func() error {
			r, err := b.NewRangeReader(ctx, key, off, part, nil)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, r)
			return errors.Join(err, r.Close())
		})
	}
	return g.Wait()
}
