package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

// TestCutBody: a body is read on from where it was cut, not from its beginning.
func TestCutBody(t *testing.T) {
	credentials(t)
	_, url := newFakeS3(t)
	proxied, p := between(t, url, func(r *http.Request, _ int) faultproxy.Fault {
		return faultproxy.Fault{Cut: r.Method == http.MethodGet, After: 300_000}
	})
	s := open(t, "s3://bucket?endpoint="+url, quick)
	data := noise(2 << 20)
	if err := s.Upload(t.Context(), "shard", file(t, data)); err != nil {
		t.Fatal(err)
	}
	s, got := open(t, "s3://bucket?endpoint="+proxied, quick), make([]byte, len(data))
	if err := s.ReadRange(t.Context(), "shard", got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read differs, error %v", err)
	}
	if c := p.Counts()["GET"]; c.Requests != 8 || c.Received < 2<<20 || c.Received > 2<<20+8*64<<10 {
		t.Errorf("%+v, want 8 requests for 2 MiB in all: two parts of four cuts each", c)
	}
	never, _ := between(t, url, func(*http.Request, int) faultproxy.Fault { return faultproxy.Fault{Cut: true, After: 1} })
	err := open(t, "s3://bucket?endpoint="+never, quick).ReadRange(t.Context(), "shard", got, 0)
	wantError(t, err, "read s3://bucket/shard: gave up after 8 connections that were cut")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("a cut connection passes for an object that ended")
	}
	early, _ := between(t, url, func(*http.Request, int) faultproxy.Fault { return faultproxy.Fault{Lost: true} })
	err = open(t, "s3://bucket?endpoint="+early, quick).ReadRange(t.Context(), "shard", got, 0)
	wantError(t, err, "read s3://bucket/shard: gave up after 8 attempts: connection was cut")
}

// TestStall: a connection that brings nothing more is as good as cut.
func TestStall(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	opts := quick
	opts.Stall = 50 * time.Millisecond
	s := open(t, "s3://bucket?endpoint="+url, opts)
	if err := s.Upload(t.Context(), "shard", file(t, noise(1000))); err != nil {
		t.Fatal(err)
	}
	stalled := make(chan struct{}, 1)
	fake.before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.Header.Get("Range") != "bytes=0-999" {
			return false
		}
		select {
		case stalled <- struct{}{}:
		default:
			return false
		}
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("ETag", fake.objects["bucket/shard"].etag)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(noise(1000)[:10]) // the client reads no more
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	got := make([]byte, 1000)
	if err := s.ReadRange(t.Context(), "shard", got, 0); err != nil || !bytes.Equal(got, noise(1000)) {
		t.Errorf("read differs, error %v", err)
	}
	if len(stalled) != 1 {
		t.Error("no connection stalled")
	}
}

// TestIgnoredRange: a whole object is not taken for the part that was asked for.
func TestIgnoredRange(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	s := open(t, "s3://bucket?endpoint="+url, quick)
	if err := s.Upload(t.Context(), "shard", file(t, noise(1000))); err != nil {
		t.Fatal(err)
	}
	fake.before(func(_ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del("Range")
		return false
	})
	err := s.ReadRange(t.Context(), "shard", make([]byte, 10), 500)
	wantError(t, err, "want one from 500")
}

// TestSentences: what goes wrong is one sentence that says what to do, without secrets.
func TestSentences(t *testing.T) {
	answer := func(status int, code string, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			refuseS3(w, status, code, "what the store says of "+r.Header.Get("X-None"))
			return true
		}
	}
	for name, tt := range map[string]struct {
		url  string
		hook func(http.ResponseWriter, *http.Request) bool
		want []string
	}{
		"bucket":      {"s3://missing/a", nil, []string{"s3://missing/a/x: bucket missing does not exist", "create it"}},
		"key id":      {"s3://bucket", answer(403, "InvalidAccessKeyId"), []string{"s3://bucket/x: ", "credentials", "AWS_ACCESS_KEY_ID"}},
		"key":         {"s3://bucket", answer(403, "SignatureDoesNotMatch"), []string{"credentials (SignatureDoesNotMatch)", "AWS_SECRET_ACCESS_KEY"}},
		"denied":      {"s3://bucket", answer(403, "AccessDenied"), []string{"access is denied", "bucket bucket"}},
		"region":      {"s3://bucket", answer(301, "PermanentRedirect", "X-Amz-Bucket-Region", "eu-west-3"), []string{"in region eu-west-3, not in us-east-1", "?region=eu-west-3"}},
		"region 400":  {"s3://bucket", answer(400, "AuthorizationHeaderMalformed"), []string{"not in region us-east-1", "AWS_REGION"}},
		"throttled":   {"s3://bucket", answer(503, "SlowDown"), []string{"gave up after 3 attempts: store answered SlowDown"}},
		"broken":      {"s3://bucket", answer(500, "InternalError"), []string{"gave up after 3 attempts: store answered InternalError"}},
		"other fault": {"s3://bucket", answer(400, "NewFault"), []string{"store answered NewFault: what the store says"}},
	} {
		t.Run(name, func(t *testing.T) {
			credentials(t)
			fake, url := newFakeS3(t)
			fake.before(tt.hook)
			opts := quick
			opts.Attempts = 3
			s := open(t, tt.url+"?endpoint="+url, opts)
			path := file(t, noise(6<<20))
			_, _, err := s.Get(t.Context(), "x")
			_, sizeErr := s.Size(t.Context(), "x")
			_, putErr := s.PutIf(t.Context(), "x", nil, "")
			for _, err := range []error{
				err, sizeErr, putErr, s.ReadRange(t.Context(), "x", make([]byte, 1), 0), s.Upload(t.Context(), "x", path), s.Copy(t.Context(), s, "x", "x"),
			} {
				wantError(t, err, tt.want...)
				if strings.Contains(err.Error(), "\n") || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("error %q: want one line that is not fs.ErrNotExist", err)
				}
			}
			for _, err := range s.List(t.Context(), "") {
				if err == nil {
					t.Error("list gave an object, want an error")
				}
				wantError(t, err, "list ")
			}
		})
	}
}

// TestNoListing: what is no list passes neither for an empty one nor for a whole one.
func TestNoListing(t *testing.T) {
	const none, first = "none of S3: check the endpoint", "<Contents><Key>a</Key><Size>1</Size></Contents>"
	for name, tt := range map[string]struct{ body, want string }{
		"empty":     {"", none},
		"declared":  {`<?xml version="1.0" encoding="UTF-8"?>`, none},
		"no list":   {"<html><body>Log in</body></html>", none},
		"nothing":   {"<ListBucketResult/>", none},
		"cut":       {"<ListBucketResult><Name>bucket</Name>" + first, "answer ends early, or is none of S3"},
		"text":      {"hello", none},
		"version 1": {"<ListBucketResult><Name>bucket</Name><IsTruncated>true</IsTruncated><NextMarker>a</NextMarker>" + first + "</ListBucketResult>", ": store lists 1 objects and does not say how to go on"},
	} {
		t.Run(name, func(t *testing.T) {
			credentials(t)
			fake, url := newFakeS3(t)
			fake.before(func(w http.ResponseWriter, _ *http.Request) bool {
				say(w, "%s", tt.body)
				return true
			})
			opts := quick
			opts.Attempts = 2
			s := open(t, "s3://bucket?endpoint="+url, opts)
			var err error
			for o, e := range s.List(t.Context(), "") {
				if err = e; e == nil {
					t.Errorf("list gave %v", o)
				}
			}
			wantError(t, err, "list s3://bucket", tt.want)
			if asked, final := strings.Contains(err.Error(), "gave up after 2 attempts"), name == "version 1"; asked == final {
				t.Errorf("error %q: asked again is %t, want %t", err, asked, !final)
			}
			if name == "version 1" {
				return // whether uploads are all there is asked with another word
			}
			err = nil
			for _, e := range s.Uploads(t.Context(), "") {
				err = e
			}
			wantError(t, err, "list")
		})
	}
}

// TestListAgain: a store that does not know how to go on with a list ends the work, which
// would have no end.
func TestListAgain(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	fake.page = 2
	s := open(t, "s3://bucket?endpoint="+url, quick)
	for _, name := range []string{"a", "b", "c"} {
		if _, err := s.PutIf(t.Context(), name, []byte(name), ""); err != nil {
			t.Fatal(err)
		}
	}
	fake.before(func(_ http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		q.Del("continuation-token")
		r.URL.RawQuery = q.Encode()
		return false
	})
	var names []string
	var err error
	for o, e := range s.List(t.Context(), "") {
		if err = e; e == nil {
			names = append(names, o.Name)
		}
	}
	wantError(t, err, `list s3://bucket/: store lists "a" again`)
	if want := []string{"a", "b"}; !slices.Equal(names, want) {
		t.Errorf("list gave %q, want %q", names, want)
	}
}

func TestUnreachable(t *testing.T) {
	credentials(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // only its port is wanted
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+l.Addr().String())
	s := open(t, "s3://bucket", quick)
	_, _, err = s.Get(t.Context(), "x")
	wantError(t, err, "read s3://bucket/x: gave up after 8 attempts: endpoint cannot be reached: dial tcp "+l.Addr().String())
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://no-such-host.invalid")
	_, _, err = open(t, "s3://bucket", quick).Get(t.Context(), "x")
	wantError(t, err, "host no-such-host.invalid of the endpoint cannot be found")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.ReadRange(ctx, "x", make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestNoCredentials(t *testing.T) {
	credentials(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	_, url := newFakeS3(t)
	_, _, err := open(t, "s3://bucket?endpoint="+url, quick).Get(t.Context(), "x")
	wantError(t, err, "no credentials were found", "AWS_ACCESS_KEY_ID")
	if _, _, err := open(t, "s3://bucket?anonymous=true&endpoint="+url, quick).Get(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist without credentials", err)
	}
}

func TestAddresses(t *testing.T) {
	credentials(t)
	for url, want := range map[string]string{
		"s3://bucket":                          "s3://bucket",
		"s3://bucket/":                         "s3://bucket",
		"s3://bucket/a/b/":                     "s3://bucket/a/b",
		"s3://bucket/a?region=eu-west-1":       "s3://bucket/a",
		"s3://bucket/a#1%20?region=x":          "s3://bucket/a#1%20",
		"s3://bucket/a?use_path_style=maybe":   "invalid syntax",
		"s3://bucket/a?anonymous=2":            "invalid syntax",
		"s3://bucket/a?secret=" + secret:       `query has "secret", want only region`,
		"s3://bucket/a?x=%zz" + secret:         "query after ? cannot be read",
		"s3://" + keyID + ":" + secret + "@b":  "credentials in a URL",
		"s3:///a":                              `bucket is "", want s3://bucket/prefix`,
		"s3://bucket/a//b":                     "prefix has an empty, . or .. element",
		"s3://bucket/../b":                     "prefix has an empty, . or .. element",
		"http://bucket":                        `scheme is "http", want s3:// or gs://`,
		"bucket":                               "scheme is",
		"s3:/" + keyID + ":" + secret + "@b/a": "does not begin with a scheme",
		keyID + ":" + secret + "@b://a":        "does not begin with a scheme",
		"s3://b/a:" + secret + "@//b":          "prefix has an empty, . or .. element",
	} {
		s, err := objstore.Open(t.Context(), url, objstore.Options{})
		if err != nil {
			wantError(t, err, want)
		} else if s.String() != want {
			t.Errorf("%s: got %s, want %s", url, s, want)
		}
	}
	s := open(t, "s3://bucket/a?endpoint=http://127.0.0.1:1", quick)
	for _, name := range []string{"", ".", "..", "../x", "a//b", "/a", "a/", "a\nb", "a\x00"} {
		_, _, err := s.Get(t.Context(), name)
		wantError(t, err, fmt.Sprintf("read %q in s3://bucket/a: want a slash-separated name", name))
	}
}
