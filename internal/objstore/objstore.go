// Package objstore keeps objects in S3-compatible stores and Google's: listed, read by
// ranges, written whole or not at all.
//
// Requests that fail for a reason that may pass (5xx, throttling, cut connections) are
// sent again by the stores' own clients, with growing pauses; bodies that are cut are
// read on from where they were cut by this package. Both are bounded, and errors that
// remain are sentences without credentials.
package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"time"
	"unicode"

	"gocloud.dev/blob"
)

// ErrChanged means that an object was replaced while it was read.
var ErrChanged = errors.New("object was replaced while it was read")

// Options bound what a store may use. The zero value is good.
type Options struct {
	Attempts    int           // of a request, and reads of a cut body; 0 is 8
	MaxBackoff  time.Duration // longest pause between two attempts; 0 is 20 s
	Stall       time.Duration // a connection that brings nothing for so long is cut; 0 is 60 s
	Concurrency int           // requests at once, of one store; 0 is 16
	PartBytes   int64         // of one request of a large transfer; 0 is 8 MiB, at least 5 MiB for uploads
}

func (o *Options) defaults() {
	set(&o.Attempts, 8)
	set(&o.MaxBackoff, 20*time.Second)
	set(&o.Stall, time.Minute)
	set(&o.Concurrency, 16)
	set(&o.PartBytes, 8<<20)
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Object is what a store lists of an object.
type Object struct {
	Name     string // below the store's prefix
	Size     int64
	Modified time.Time
}

// Upload is a multipart upload that was begun and neither completed nor aborted: its
// parts take space, and no listing of objects shows them.
type Upload struct {
	Name  string // below the store's prefix
	ID    string // the store's
	Begun time.Time
}

// Store is a prefix of a bucket. Its methods may be called at once by several
// goroutines; all names are slash-separated and below the prefix.
type Store struct {
	at      address
	opts    Options
	bucket  *blob.Bucket
	vendor  vendor
	slots   chan struct{} // one for each request of a large read
	version versions
}

// vendor is what gocloud.dev/blob has no words for, or would do with more memory. Keys
// are whole, and errors are as the clients return them.
type vendor interface {
	// stat asks for what is known of an object without reading it.
	stat(ctx context.Context, key string) (state, error)
	// readIf makes a read fail unless the object has this version.
	readIf(version string) func(as func(any) bool) error
	// reads is the version that a reader of a range from off reads.
	reads(r *blob.Reader, off int64) (version string, err error)
	// write makes an object, whole or not at all.
	write(ctx context.Context, key string, w write) error
	// copyFrom copies an object from a bucket of the same service.
	copyFrom(ctx context.Context, bucket, srcKey, dstKey string, src state) error
	uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error]
	abort(ctx context.Context, key, id string) error
	// cause says what an answer of the store means; nil where it is none.
	cause(err error) error
}

// state is what a store knows of an object.
type state struct {
	size    int64
	version string // entity tag or generation
	put     string // what the PutIf that wrote it knows it by, if one did
	crc     uint32 // CRC-32C of the whole object
	summed  bool   // the store told crc
}

// write is an object to be.
type write struct {
	body io.ReaderAt
	size int64
	crc  uint32
	put  string  // of a PutIf
	is   *string // the version that the object must have, empty for none; nil makes no condition
}

// Open opens the bucket and prefix of a URL, s3://bucket/prefix or gs://bucket/prefix.
// It sends no request: a bucket that is missing or closed is found by the first use.
//
// Credentials, region and endpoint come from the vendor's usual places: environment,
// configuration files, the machine's role. The query of an s3 URL may name region,
// endpoint, profile, anonymous=true and use_path_style; a custom endpoint, also one of
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, is addressed by paths. That of a gs URL may
// have anonymous=true.
func Open(ctx context.Context, url string, opts Options) (*Store, error) {
	opts.defaults()
	at, err := parse(url)
	if err != nil {
		return nil, err
	}
	s := &Store{at: at, opts: opts, slots: make(chan struct{}, opts.Concurrency)}
	if at.scheme == "s3" {
		s.bucket, s.vendor, err = openS3(ctx, &s.at, opts)
	} else {
		s.bucket, s.vendor, err = openGCS(ctx, s.at, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	return s, nil
}

// Close ends the store's use.
func (s *Store) Close() error { return s.bucket.Close() }

// String is the store's URL without its query.
func (s *Store) String() string { return s.at.String() }

// contentType is for those who look at a store with a browser.
func contentType(key string) string {
	switch path.Ext(key) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".json":
		return "application/json"
	}
	return "application/octet-stream"
}

// key is the whole name of an object. Names that a path would read in another way than
// a store does are refused: stores take them, and file systems behind stores do not.
func (s *Store) key(op, name string) (string, error) {
	if !fs.ValidPath(name) || name == "." || strings.ContainsFunc(name, unicode.IsControl) {
		return "", fmt.Errorf("%s %q in %s: want a slash-separated name without control characters and empty, . and .. elements", op, name, s)
	}
	return s.at.prefix + name, nil
}

// fail says what went wrong with an object in one sentence.
func (s *Store) fail(op, key string, err error) error {
	return fmt.Errorf("%s %s: %w", op, s.at.of(key), s.cause(err))
}
