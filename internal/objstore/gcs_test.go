package objstore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

// fakeGCS is a fake of the calls of Google's storage that the package makes, for Google's
// own client. No server of that API runs here.
type fakeGCS struct {
	mu         sync.Mutex
	generation int64
	objects    map[string]gcsObject
	sessions   map[string]*gcsSession
}

type gcsObject struct {
	attrs map[string]any
	data  []byte
}

type gcsSession struct {
	name  string
	query map[string][]string
	attrs map[string]any
	data  []byte
}

func newFakeGCS(t *testing.T) (*fakeGCS, string) {
	t.Helper()
	f := &fakeGCS{objects: map[string]gcsObject{}, sessions: map[string]*gcsSession{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return f, s.URL
}

func refuseGCS(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	say(w, `{"error": {"code": %d, "message": %q}}`, status, message)
}

func (f *fakeGCS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path, q := r.URL.Path, r.URL.Query()
	switch {
	case strings.Contains(path, "/missing/"):
		refuseGCS(w, http.StatusNotFound, "The specified bucket does not exist.")
	case strings.HasSuffix(path, "/b/denied/o"), strings.Contains(path, "/denied/"):
		refuseGCS(w, http.StatusForbidden, "does not have storage.objects.get access")
	case strings.HasPrefix(path, "/upload/") && q.Get("upload_id") != "":
		f.resume(w, r, f.sessions[q.Get("upload_id")], body)
	case strings.HasPrefix(path, "/upload/"):
		f.begin(w, r, body)
	case strings.Contains(path, "/rewriteTo/"):
		from, to, _ := strings.Cut(strings.TrimPrefix(path, "/storage/v1/b/bucket/o/"), "/rewriteTo/b/bucket/o/")
		f.store(to, f.objects[from].data, map[string]any{})
		f.answer(w, map[string]any{"done": true, "resource": f.objects[to].attrs})
	case path == "/storage/v1/b/bucket/o":
		var items []any
		for name, o := range f.objects {
			if strings.HasPrefix(name, q.Get("prefix")) {
				items = append(items, o.attrs)
			}
		}
		f.answer(w, map[string]any{"items": items})
	case strings.HasPrefix(path, "/storage/v1/b/bucket/o/"):
		f.object(w, r, strings.TrimPrefix(path, "/storage/v1/b/bucket/o/"))
	default: // the XML interface, by which the client reads
		f.read(w, r, strings.TrimPrefix(path, "/bucket/"))
	}
}

func (f *fakeGCS) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// holds checks the condition on an object's generation.
func (f *fakeGCS) holds(w http.ResponseWriter, want, name string) bool {
	o, ok := f.objects[name]
	if want == "" || want == "0" && !ok || ok && want == o.attrs["generation"] {
		return true
	}
	refuseGCS(w, http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold.")
	return false
}

func (f *fakeGCS) store(name string, data []byte, attrs map[string]any) {
	f.generation++
	attrs["bucket"], attrs["name"], attrs["size"] = "bucket", name, strconv.Itoa(len(data))
	attrs["generation"], attrs["crc32c"] = strconv.FormatInt(f.generation, 10), castagnoli(data)
	attrs["updated"] = "2026-01-02T03:04:05Z"
	f.objects[name] = gcsObject{attrs, data}
}

func (f *fakeGCS) begin(w http.ResponseWriter, r *http.Request, body []byte) {
	s := &gcsSession{query: r.URL.Query(), attrs: map[string]any{}}
	if s.query["uploadType"][0] == "resumable" {
		_ = json.Unmarshal(body, &s.attrs) // an empty one has no name
		s.name, _ = s.attrs["name"].(string)
		id := strconv.Itoa(len(f.sessions) + 1)
		f.sessions[id] = s
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path+"?uploadType=resumable&upload_id="+id)
		return
	}
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	if p, err := parts.NextPart(); err == nil {
		_ = json.NewDecoder(p).Decode(&s.attrs)
	}
	if p, err := parts.NextPart(); err == nil {
		s.data, _ = io.ReadAll(p)
	}
	s.name, _ = s.attrs["name"].(string)
	f.finish(w, s)
}

func (f *fakeGCS) resume(w http.ResponseWriter, r *http.Request, s *gcsSession, body []byte) {
	var first, last, total int64
	if n, _ := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &total); n >= 2 {
		s.data = append(s.data[:first], body...)
	}
	if !strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
		f.finish(w, s)
		return
	}
	w.Header().Set("X-Http-Status-Code-Override", "308")
	w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(s.data)-1))
}

func (f *fakeGCS) finish(w http.ResponseWriter, s *gcsSession) {
	want := ""
	if v := s.query["ifGenerationMatch"]; len(v) > 0 {
		want = v[0]
	}
	if !f.holds(w, want, s.name) {
		return
	}
	if sum := s.attrs["crc32c"]; sum != castagnoli(s.data) {
		refuseGCS(w, http.StatusBadRequest, fmt.Sprintf("crc32c is %v", sum))
		return
	}
	f.store(s.name, s.data, s.attrs)
	f.answer(w, s.attrs)
}

func (f *fakeGCS) object(w http.ResponseWriter, r *http.Request, name string) {
	o, ok := f.objects[name]
	switch {
	case !ok:
		refuseGCS(w, http.StatusNotFound, "No such object: bucket/"+name)
	case r.Method == http.MethodDelete:
		delete(f.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("alt") == "media":
		f.read(w, r, name)
	default:
		f.answer(w, o.attrs)
	}
}

func (f *fakeGCS) read(w http.ResponseWriter, r *http.Request, name string) {
	o, ok := f.objects[name]
	if !ok {
		refuseGCS(w, http.StatusNotFound, "No such object: bucket/"+name)
		return
	}
	want := r.Header.Get("X-Goog-If-Generation-Match")
	if want == "" {
		want = r.URL.Query().Get("ifGenerationMatch")
	}
	if !f.holds(w, want, name) {
		return
	}
	w.Header().Set("X-Goog-Generation", o.attrs["generation"].(string))
	w.Header().Set("X-Goog-Hash", "crc32c="+castagnoli(o.data))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.data))
}

// TestGoogle: the package's promises, held by Google's client against a fake.
func TestGoogle(t *testing.T) {
	_, url := newFakeGCS(t)
	for name, choose := range map[string]faultproxy.Choose{
		"sound":  nil,
		"faults": faultproxy.Random(1, 0.1, 0.1, 0.1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			proxied, _ := between(t, url, choose)
			t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(proxied, "http://"))
			s, ctx := open(t, "gs://bucket/"+name, quick), t.Context()
			for size, name := range map[int]string{10: "small", 3<<20 + 1: "shards/large"} {
				data := noise(size)
				if err := s.Upload(ctx, name, file(t, data)); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, size)
				if err := s.ReadRange(ctx, name, got, 0); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s differs, error %v", name, err)
				}
			}
			version, err := s.PutIf(ctx, "manifest.json", []byte("one"), "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.PutIf(ctx, "manifest.json", []byte("late"), ""); !errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v, want fs.ErrExist", err)
			}
			next, err := s.PutIf(ctx, "manifest.json", []byte("two"), version)
			if err != nil || next == version {
				t.Errorf("version %q after %q, error %v", next, version, err)
			}
			if _, err := s.PutIf(ctx, "manifest.json", []byte("late"), version); !errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v, want fs.ErrExist", err)
			}
			if data, got, err := s.Get(ctx, "manifest.json"); err != nil || string(data) != "two" || got != next {
				t.Errorf("got %q in version %q, error %v, want version %q", data, got, err, next)
			}
			if err := s.Copy(ctx, s, "shards/large", "shards/copy"); err != nil {
				t.Error(err)
			}
			n := 0
			for o, err := range s.List(ctx, "shards/") {
				if err != nil || o.Size != 3<<20+1 {
					t.Error(o, err)
				}
				n++
			}
			if n != 2 {
				t.Errorf("%d shards are listed, want 2", n)
			}
			for range 2 {
				if err := s.Remove(ctx, "shards/copy"); err != nil {
					t.Error(err)
				}
			}
			if _, err := s.Size(ctx, "shards/copy"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v, want fs.ErrNotExist", err)
			}
			for u, err := range s.Uploads(ctx, "") {
				t.Error(u, err)
			}
		})
	}
}

func TestGoogleChangedAndSentences(t *testing.T) {
	fake, url := newFakeGCS(t)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(url, "http://"))
	fake.store("x", []byte("old state"), map[string]any{})
	s, p := open(t, "gs://bucket", quick), make([]byte, 4)
	if err := s.ReadRange(t.Context(), "x", p, 0); err != nil {
		t.Fatal(err)
	}
	fake.store("x", []byte("new state"), map[string]any{})
	if err := s.ReadRange(t.Context(), "x", p, 4); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("error %v, want ErrChanged", err)
	}
	for bucket, want := range map[string]string{"missing": "bucket missing does not exist", "denied": "access is denied"} {
		_, _, err := open(t, "gs://"+bucket, quick).Get(t.Context(), "x")
		wantError(t, err, "read gs://"+bucket+"/x: ", want)
	}
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	_, err := objstore.Open(t.Context(), "gs://bucket", quick)
	wantError(t, err, "open gs://bucket: no credentials were found", "GOOGLE_APPLICATION_CREDENTIALS")
}
