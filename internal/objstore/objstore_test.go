package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

const (
	keyID  = "AKIDEXAMPLEOFTESTS"
	secret = "SecretOfTestsThatNoErrorShows"
)

// quick are options whose pauses no test has to wait for.
var quick = objstore.Options{MaxBackoff: time.Millisecond, PartBytes: 1 << 20, Concurrency: 4} //nolint:gochecknoglobals // a constant

// credentials keeps the tests from those of whoever runs them.
func credentials(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REQUEST_CHECKSUM_CALCULATION": "",
	} {
		t.Setenv(name, value)
	}
}

func open(t *testing.T, url string, opts objstore.Options) *objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// between puts a proxy with faults before a server.
func between(t *testing.T, url string, choose faultproxy.Choose) (string, *faultproxy.Proxy) {
	t.Helper()
	p, err := faultproxy.New(url, choose)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL, p
}

func noise(n int) []byte {
	rng := rand.NewChaCha8([32]byte{1})
	p := make([]byte, n)
	_, _ = rng.Read(p) // never fails
	return p
}

func file(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantError demands an error that says all of this, and no secret.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
	if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) || strings.Contains(text, keyID) {
		t.Errorf("error %q shows a credential", text)
	}
}

func TestRoundTrip(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	fake.page = 2
	s := open(t, "s3://bucket/some/prefix?endpoint="+url, quick)
	ctx := t.Context()
	for name, size := range map[string]int{"empty": 0, "small": 1000, "one part": 5 << 20, "parts": 12<<20 + 1} {
		data := noise(size)
		if err := s.Upload(ctx, "shards/"+name, file(t, data)); err != nil {
			t.Fatal(err)
		}
		got, version, err := s.Get(ctx, "shards/"+name)
		if err != nil || !bytes.Equal(got, data) || version == "" {
			t.Errorf("%s: %d bytes, version %q, error %v, want %d bytes as written", name, len(got), version, err, size)
		}
		if n, err := s.Size(ctx, "shards/"+name); err != nil || n != int64(size) {
			t.Errorf("%s: size %d, error %v, want %d", name, n, err, size)
		}
		if size < 100 {
			continue
		}
		p := make([]byte, size-50)
		if err := s.ReadRange(ctx, "shards/"+name, p, 25); err != nil || !bytes.Equal(p, data[25:size-25]) {
			t.Errorf("%s: range differs, error %v", name, err)
		}
		for _, off := range []int64{51, int64(size), int64(size) + 9} {
			if err := s.ReadRange(ctx, "shards/"+name, p, off); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: range beyond the end: error %v, want io.ErrUnexpectedEOF", name, err)
			}
		}
	}
	var names []string
	for o, err := range s.List(ctx, "shards/") {
		if err != nil || o.Modified.IsZero() {
			t.Fatal(o, err)
		}
		names = append(names, fmt.Sprint(o.Name, " ", o.Size))
	}
	if diff := cmp.Diff([]string{"shards/empty 0", "shards/one part 5242880", "shards/parts 12582913", "shards/small 1000"}, names); diff != "" {
		t.Error(diff)
	}
	for range 2 { // the second time it is not there
		if err := s.Remove(ctx, "shards/small"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Size(ctx, "shards/small"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if _, _, err := s.Get(ctx, "shards/small"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if err := s.ReadRange(ctx, "shards/small", make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// TestFaults: under a share of each fault, all operations do what they say.
func TestFaults(t *testing.T) {
	credentials(t)
	_, url := newFakeS3(t)
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			proxied, p := between(t, url, faultproxy.Random(seed, 0.15, 0.15, 0.15, time.Millisecond))
			s := open(t, fmt.Sprintf("s3://bucket/%d?endpoint=%s", seed, proxied), quick)
			ctx, data := t.Context(), noise(12<<20+1)
			if err := s.Upload(ctx, "shard", file(t, data)); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(data))
			if err := s.ReadRange(ctx, "shard", got, 0); err != nil || !bytes.Equal(got, data) {
				t.Errorf("read differs, error %v", err)
			}
			version := ""
			for i := range 10 {
				var err error
				if version, err = s.PutIf(ctx, "manifest", fmt.Append(nil, "state ", i), version); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.PutIf(ctx, "manifest", []byte("late"), ""); !errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v, want fs.ErrExist", err)
			}
			if err := s.Copy(ctx, s, "shard", "copy"); err != nil {
				t.Error(err)
			}
			if text, _, err := s.Get(ctx, "manifest"); err != nil || string(text) != "state 9" {
				t.Errorf("manifest %q, error %v, want the last state", text, err)
			}
			if err := s.Remove(ctx, "manifest"); err != nil {
				t.Error(err)
			}
			faults := 0
			for _, c := range p.Counts() {
				faults += c.Faults
			}
			if faults < 5 {
				t.Errorf("%d faults, want some: %v", faults, p.Counts())
			}
		})
	}
}

// TestLostAnswer: a conditional write that was done is no conflict because its answer
// was lost, nor is a completed upload a failure.
func TestLostAnswer(t *testing.T) {
	credentials(t)
	_, url := newFakeS3(t)
	var lost atomic.Int32
	proxied, _ := between(t, url, func(r *http.Request, nth int) faultproxy.Fault {
		f := faultproxy.Fault{Lost: nth == 0 && (faultproxy.Kind(r) == "PUT" || faultproxy.Kind(r) == "POST upload" && r.URL.Query().Has("uploadId"))}
		if f.Lost {
			lost.Add(1)
		}
		return f
	})
	s := open(t, "s3://bucket?endpoint="+proxied, quick)
	first, err := s.PutIf(t.Context(), "manifest.json", []byte("one"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutIf(t.Context(), "manifest.json", []byte("two"), first); err != nil {
		t.Error(err)
	}
	if err := s.Upload(t.Context(), "shard", file(t, noise(11<<20))); err != nil {
		t.Error(err)
	}
	if lost.Load() != 2 {
		t.Errorf("%d answers were lost, want the first of each", lost.Load())
	}
}

func TestOneOfTwoWriters(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	s := open(t, "s3://bucket/ds?endpoint="+url, quick)
	ctx, version := t.Context(), ""
	for round := range 5 {
		var won atomic.Int32
		var next atomic.Value
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				v, err := s.PutIf(ctx, "manifest.json", fmt.Append(nil, round, i), version)
				if err == nil {
					won.Add(1)
					next.Store(v)
				} else if !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d writers won, want one", round, won.Load())
		}
		version, _ = next.Load().(string)
	}
	fake.mu.Lock()
	delete(fake.objects, "bucket/ds/manifest.json")
	fake.mu.Unlock()
	_, err := s.PutIf(ctx, "manifest.json", nil, version)
	wantError(t, err, "write s3://bucket/ds/manifest.json: ", "somebody else wrote it")
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want fs.ErrExist for an object that was removed", err)
	}
}

func TestReplacedWhileRead(t *testing.T) {
	credentials(t)
	_, url := newFakeS3(t)
	s := open(t, "s3://bucket?endpoint="+url, quick)
	other := open(t, "s3://bucket?endpoint="+url, quick)
	ctx, p := t.Context(), make([]byte, 4)
	if err := other.Upload(ctx, "shard", file(t, []byte("old state"))); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadRange(ctx, "shard", p, 0); err != nil {
		t.Fatal(err)
	}
	if err := other.Upload(ctx, "shard", file(t, []byte("new state"))); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadRange(ctx, "shard", p, 4); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("error %v, want ErrChanged", err)
	}
	if data, _, err := s.Get(ctx, "shard"); err != nil || string(data) != "new state" {
		t.Errorf("got %q, error %v, want the new state", data, err)
	}
	if err := s.ReadRange(ctx, "shard", p, 4); err != nil || string(p) != "stat" {
		t.Errorf("got %q, error %v, want the new state after Get", p, err)
	}
}

func TestUploads(t *testing.T) {
	credentials(t)
	fake, url := newFakeS3(t)
	s := open(t, "s3://bucket/ds?endpoint="+url, quick)
	ctx, cancel := context.WithCancel(t.Context())
	fake.before(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("partNumber") == "2" {
			cancel()
		}
		return false
	})
	path := file(t, noise(11<<20))
	if err := s.Upload(ctx, "shard", path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	fake.before(nil)
	fake.mu.Lock()
	if len(fake.uploads) != 0 || len(fake.objects) != 0 {
		t.Errorf("%d uploads and %d objects after a cancelled upload, want none", len(fake.uploads), len(fake.objects))
	}
	fake.uploads["7"] = &fakeUpload{key: "bucket/ds/shards/9", begun: time.Now()}
	fake.uploads["8"] = &fakeUpload{key: "bucket/elsewhere", begun: time.Now()}
	fake.mu.Unlock()
	var got []objstore.Upload
	for u, err := range s.Uploads(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, u)
		for range 2 {
			if err := s.Abort(t.Context(), u); err != nil {
				t.Error(err)
			}
		}
	}
	if diff := cmp.Diff([]objstore.Upload{{Name: "shards/9", ID: "7"}}, got, cmpopts.IgnoreFields(objstore.Upload{}, "Begun")); diff != "" {
		t.Error(diff)
	}
	if len(fake.uploads) != 1 {
		t.Errorf("%d uploads are left, want the one elsewhere", len(fake.uploads))
	}
}

func TestCopyBetweenBuckets(t *testing.T) {
	credentials(t)
	_, url := newFakeS3(t)
	from := open(t, "s3://other/a?endpoint="+url, quick)
	to := open(t, "s3://bucket/b?endpoint="+url, quick)
	data := noise(100)
	if err := from.Upload(t.Context(), "x", file(t, data)); err != nil {
		t.Fatal(err)
	}
	if err := to.Copy(t.Context(), from, "x", "y"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := to.Get(t.Context(), "y"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("copy differs, error %v", err)
	}
	if err := to.Copy(t.Context(), from, "none", "y"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	_, elsewhere := newFakeS3(t)
	if err := open(t, "s3://bucket?endpoint="+elsewhere, quick).Copy(t.Context(), from, "x", "y"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v, want errors.ErrUnsupported", err)
	}
}
