package objstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// s3Store is the vendor of S3-compatible stores.
type s3Store struct {
	client *s3.Client
	bucket string
	region string
	opts   Options
	plain  bool  // the store knows no checksums: AWS_REQUEST_CHECKSUM_CALCULATION=when_required
	copies int64 // largest object that one request copies
}

// openS3 finds credentials, region and endpoint, and notes the endpoint in the address.
func openS3(ctx context.Context, at *address, opts Options) (*blob.Bucket, vendor, error) {
	load := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}),
		config.WithRetryer(func() aws.Retryer { return retryer(opts) }),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = 2 * opts.Concurrency
			t.ResponseHeaderTimeout = 2 * opts.Stall // a store has work to do before some answers
		})),
	}
	var anonymous bool
	paths := ""
	for name, values := range at.query {
		value := values[len(values)-1]
		var err error
		switch name {
		case "region":
			load = append(load, config.WithRegion(value))
		case "profile":
			load = append(load, config.WithSharedConfigProfile(value))
		case "endpoint":
			load = append(load, config.WithBaseEndpoint(value))
		case "anonymous":
			anonymous, err = strconv.ParseBool(value)
		case "use_path_style":
			_, err = strconv.ParseBool(value)
			paths = value
		default:
			err = fmt.Errorf("query has %q, want only region, endpoint, profile, anonymous and use_path_style", name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if anonymous {
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1" // where all that is not AWS takes itself to be; AWS names the right one
	}
	if chain := cfg.Credentials; !anonymous {
		cfg.Credentials = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			c, err := chain.Retrieve(ctx)
			if err != nil {
				err = noCredentials{err}
			}
			return c, err
		})
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.DisableLogOutputChecksumValidationSkipped = true
		o.UsePathStyle = o.BaseEndpoint != nil
		o.APIOptions = append(o.APIOptions, wholeListings)
		if paths != "" {
			o.UsePathStyle, _ = strconv.ParseBool(paths) // seen to be one
		}
		at.endpoint = aws.ToString(o.BaseEndpoint)
	})
	b, err := s3blob.OpenBucket(ctx, client, at.bucket, nil)
	return b, &s3Store{
		client: client, bucket: at.bucket, region: cfg.Region, opts: opts, copies: 5 << 30,
		plain: cfg.RequestChecksumCalculation == aws.RequestChecksumCalculationWhenRequired,
	}, err
}

// errNoListing is an answer to the question for a list that is none.
var errNoListing = errors.New("answer is empty, or none of S3: check the endpoint")

// wholeListings refuses answers that the client would take for an empty list, or for the
// end of one: nothing at all, a page that some proxy asks to log in on, the first page of a
// store that knows the first version of lists alone.
func wholeListings(stack *middleware.Stack) error {
	check := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, md, err := next.HandleDeserialize(ctx, in)
		if err != nil {
			return out, md, err
		}
		switch r := out.Result.(type) {
		case *s3.ListObjectsV2Output:
			switch {
			case r.Name == nil && r.Prefix == nil && r.KeyCount == nil && r.IsTruncated == nil:
				err = errNoListing
			case aws.ToBool(r.IsTruncated) && aws.ToString(r.NextContinuationToken) == "":
				err = refuse("store lists %d objects and does not say how to go on: it does not know ListObjectsV2", len(r.Contents))
			}
		case *s3.ListMultipartUploadsOutput:
			if r.Bucket == nil && r.Prefix == nil && r.MaxUploads == nil && r.IsTruncated == nil {
				err = errNoListing
			}
		}
		return out, md, err
	}
	return stack.Deserialize.Insert(middleware.DeserializeMiddlewareFunc("WholeListings", check), "OperationDeserializer", middleware.Before)
}

// retryer sends requests again. Its attempts bound it, not a budget for all requests
// together: a run of hours may meet more faults than a budget foresees.
func retryer(opts Options) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = opts.Attempts
		o.MaxBackoff = opts.MaxBackoff
		o.RateLimiter = ratelimit.None
		o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{
			"ConditionalRequestConflict": {}, // another conditional write is on its way
			"OperationAborted":           {},
		}}, retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			if errors.As(err, new(*refusal)) {
				return aws.FalseTernary
			}
			var resp *awshttp.ResponseError
			if errors.As(err, &resp) && resp.HTTPStatusCode()/100 == 2 { // the rest of the answer was cut
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		}))
	})
}

func (v *s3Store) stat(ctx context.Context, key string) (state, error) {
	in := &s3.HeadObjectInput{Bucket: &v.bucket, Key: &key}
	if !v.plain {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := v.client.HeadObject(ctx, in)
	if err != nil {
		return state{}, err
	}
	st := state{size: aws.ToInt64(out.ContentLength), version: aws.ToString(out.ETag), put: out.Metadata[putKey]}
	// A composite checksum is one of the parts' checksums.
	if sum, err := base64.StdEncoding.DecodeString(aws.ToString(out.ChecksumCRC32C)); err == nil && len(sum) == 4 && out.ChecksumType != types.ChecksumTypeComposite {
		st.crc, st.summed = binary.BigEndian.Uint32(sum), true
	}
	return st, nil
}

func (v *s3Store) readIf(version string) func(as func(any) bool) error {
	return func(as func(any) bool) error {
		var in *s3.GetObjectInput
		if as(&in) {
			in.IfMatch = &version
		}
		return nil
	}
}

func (v *s3Store) reads(r *blob.Reader, off int64) (string, error) {
	var out s3.GetObjectOutput
	r.As(&out)
	if off > 0 && !strings.HasPrefix(aws.ToString(out.ContentRange), fmt.Sprintf("bytes %d-", off)) {
		return "", refuse("store sent range %q, want one from %d: it knows no ranges", aws.ToString(out.ContentRange), off)
	}
	return aws.ToString(out.ETag), nil
}

func (v *s3Store) uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		pages := s3.NewListMultipartUploadsPaginator(v.client, &s3.ListMultipartUploadsInput{Bucket: &v.bucket, Prefix: &prefix})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Upload{}, err)
				return
			}
			for _, u := range page.Uploads {
				if !yield(Upload{Name: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
		}
	}
}

func (v *s3Store) abort(ctx context.Context, key, id string) error {
	_, err := v.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &v.bucket, Key: &key, UploadId: &id})
	return err
}
