//go:build objects

package objects_test

import (
	"context"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob/s3blob"
)

// plainCopy reads an object as the store's library does without further ado, and tells
// its size.
func plainCopy(ctx context.Context, url, key string) (n int64, err error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return 0, err
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle, o.BaseEndpoint = true, aws.String(url) })
	b, err := s3blob.OpenBucket(ctx, client, "bucket", nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r, err := b.NewReader(ctx, key, nil)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(io.Discard, r)
	return n, errors.Join(err, r.Close())
}
