package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"google.golang.org/api/googleapi"
)

// gcsStore is the vendor of Google Cloud Storage. Its client reads bodies that are cut
// on by itself.
type gcsStore struct {
	client *storage.Client
	bucket string
	opts   Options
}

func openGCS(ctx context.Context, at address, opts Options) (*blob.Bucket, vendor, error) {
	anonymous := os.Getenv("STORAGE_EMULATOR_HOST") != ""
	for name, values := range at.query {
		yes, err := strconv.ParseBool(values[len(values)-1])
		if name != "anonymous" || err != nil {
			return nil, nil, fmt.Errorf("query has %q, want only anonymous=true", name)
		}
		anonymous = anonymous || yes
	}
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = 2 * opts.Concurrency
		t.ResponseHeaderTimeout = 2 * opts.Stall
		transport = t
	}
	client := gcp.NewAnonymousHTTPClient(transport)
	if !anonymous {
		creds, err := gcp.DefaultCredentials(ctx)
		if err != nil {
			return nil, nil, refuse("no credentials were found: want GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, a role of this machine, or ?anonymous=true")
		}
		if client, err = gcp.NewHTTPClient(transport, gcp.CredentialsTokenSource(creds)); err != nil {
			return nil, nil, err
		}
	}
	b, err := gcsblob.OpenBucket(ctx, client, at.bucket, nil)
	if err != nil {
		return nil, nil, err
	}
	v := &gcsStore{bucket: at.bucket, opts: opts}
	b.As(&v.client)
	// Always: what is written twice is the same, or has a condition.
	v.client.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithMaxAttempts(opts.Attempts),
		storage.WithBackoff(gax.Backoff{Initial: min(time.Second, opts.MaxBackoff), Max: opts.MaxBackoff, Multiplier: 2}))
	return b, v, nil
}

func (v *gcsStore) object(key string) *storage.ObjectHandle {
	return v.client.Bucket(v.bucket).Object(key)
}

func (v *gcsStore) stat(ctx context.Context, key string) (state, error) {
	a, err := v.object(key).Attrs(ctx)
	if err != nil {
		return state{}, err
	}
	return state{size: a.Size, version: strconv.FormatInt(a.Generation, 10), put: a.Metadata[putKey], crc: a.CRC32C, summed: true}, nil
}

// at is an object in one state.
func at(o *storage.ObjectHandle, version string) (*storage.ObjectHandle, error) {
	generation, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("version is %q, want a generation", version)
	}
	return o.If(storage.Conditions{GenerationMatch: generation}), nil
}

func (v *gcsStore) readIf(version string) func(as func(any) bool) error {
	return func(as func(any) bool) (err error) {
		var o **storage.ObjectHandle
		if as(&o) {
			*o, err = at(*o, version)
		}
		return err
	}
}

func (v *gcsStore) reads(r *blob.Reader, _ int64) (string, error) {
	var g *storage.Reader
	r.As(&g)
	return strconv.FormatInt(g.Attrs.Generation, 10), nil // the client holds the range against what it asked for
}

func (v *gcsStore) write(ctx context.Context, key string, w write) (err error) {
	o := v.object(key)
	switch {
	case w.is == nil:
	case *w.is == "":
		o = o.If(storage.Conditions{DoesNotExist: true})
	default:
		if o, err = at(o, *w.is); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx) // ends the upload when the file cannot be read
	defer cancel()
	to := o.Retryer(storage.WithErrorFunc(v.again())).NewWriter(ctx)
	to.ChunkRetryDeadline = time.Duration(v.opts.Attempts) * (v.opts.MaxBackoff + 2*v.opts.Stall) // the attempts end first
	to.ContentType = contentType(key)
	to.CRC32C, to.SendCRC32C = w.crc, true
	to.ChunkSize = int(v.opts.PartBytes)
	if w.put != "" {
		to.Metadata = map[string]string{putKey: w.put}
	}
	if _, err := io.Copy(to, io.NewSectionReader(w.body, 0, w.size)); err != nil {
		cancel()
		_ = to.Close() // it failed before
		return err
	}
	return to.Close()
}

// again decides whether a request of one upload is sent again. Without it the client sends
// those requests again for ever, whatever number of attempts it was given, but not once
// after a cut connection. It asks after each request, with nil after a good one.
func (v *gcsStore) again() func(error) bool {
	failed := 0
	return func(err error) bool {
		if !storage.ShouldRetry(err) {
			failed = 0
			return false
		}
		failed++
		return failed < v.opts.Attempts
	}
}

func (v *gcsStore) copyFrom(ctx context.Context, bucket, srcKey, dstKey string, src state) error {
	from, err := at(v.client.Bucket(bucket).Object(srcKey), src.version)
	if err != nil {
		return err
	}
	_, err = v.object(dstKey).CopierFrom(from).Run(ctx)
	return err
}

func (v *gcsStore) uploads(context.Context, string) iter.Seq2[Upload, error] {
	return func(func(Upload, error) bool) {}
}

func (v *gcsStore) abort(context.Context, string, string) error { return nil }

func (v *gcsStore) cause(err error) error {
	var api *googleapi.Error
	if !errors.As(err, &api) {
		if errors.Is(err, storage.ErrObjectNotExist) {
			return fs.ErrNotExist
		}
		return nil
	}
	switch {
	case errors.Is(err, storage.ErrBucketNotExist), api.Code == http.StatusNotFound && strings.Contains(api.Message+api.Body, "bucket does not exist"):
		return refuse("bucket %s does not exist: create it, or check its name", v.bucket)
	case api.Code == http.StatusNotFound:
		return fs.ErrNotExist
	case api.Code == http.StatusPreconditionFailed:
		return errPrecondition
	case api.Code == http.StatusRequestedRangeNotSatisfiable:
		return &shortError{"it ends before what was asked for"}
	case api.Code == http.StatusUnauthorized:
		return refuse("store does not accept the credentials: check GOOGLE_APPLICATION_CREDENTIALS, or log in again")
	case api.Code == http.StatusForbidden:
		return refuse("access is denied: the credentials may not do this in bucket %s", v.bucket)
	}
	return fmt.Errorf("store answered %d: %s", api.Code, api.Message)
}
