package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

// operation is one call of the package on a store that holds small, large and manifest.
type operation struct {
	name  string
	want  error  // of an undisturbed call
	on    string // the object that it changes, if any
	makes []byte // of that object, nil for none
	do    func(ctx context.Context, s *objstore.Store, version string) error
}

func operations(t *testing.T, small, large []byte) []operation {
	parts := noise(5<<20 + 1)
	path := file(t, parts)
	put := func(name, data string) func(context.Context, *objstore.Store, string) error {
		return func(ctx context.Context, s *objstore.Store, version string) error {
			_, err := s.PutIf(ctx, name, []byte(data), version)
			return err
		}
	}
	same := func(got, want []byte, err error) error {
		if err == nil && !bytes.Equal(got, want) {
			return errors.New("bytes differ")
		}
		return err
	}
	return []operation{
		{"upload", nil, "new", parts, func(ctx context.Context, s *objstore.Store, _ string) error { return s.Upload(ctx, "new", path) }},
		{"make", nil, "fresh", []byte("one"), func(ctx context.Context, s *objstore.Store, _ string) error { return put("fresh", "one")(ctx, s, "") }},
		{"replace", nil, "manifest", []byte("two"), put("manifest", "two")},
		{"make what is there", fs.ErrExist, "manifest", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			return put("manifest", "late")(ctx, s, "")
		}},
		{"replace another state", fs.ErrExist, "manifest", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			return put("manifest", "late")(ctx, s, "1000000")
		}},
		{"replace none", fs.ErrExist, "none", nil, put("none", "late")},
		{"copy", nil, "copy", large, func(ctx context.Context, s *objstore.Store, _ string) error { return s.Copy(ctx, s, "large", "copy") }},
		{"remove", nil, "small", nil, func(ctx context.Context, s *objstore.Store, _ string) error { return s.Remove(ctx, "small") }},
		{"get", nil, "", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			got, _, err := s.Get(ctx, "small")
			return same(got, small, err)
		}},
		{"get none", fs.ErrNotExist, "", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			_, _, err := s.Get(ctx, "none")
			return err
		}},
		{"read", nil, "", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			got := make([]byte, 600) // a client that reads on by itself comes to its end
			return same(got, large[1000:1600], s.ReadRange(ctx, "large", got, 1000))
		}},
		{"size", nil, "", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			n, err := s.Size(ctx, "large")
			return same(fmt.Append(nil, n), fmt.Append(nil, len(large)), err)
		}},
		{"list", nil, "", nil, func(ctx context.Context, s *objstore.Store, _ string) error {
			names := ""
			for o, err := range s.List(ctx, "") {
				if err != nil {
					return err
				}
				names += o.Name + " "
			}
			return same([]byte(names), []byte("large manifest small "), nil)
		}},
	}
}

// TestEachFault: a fault of requests that passes changes nothing that an operation does
// or says; one that stays is an error of the connection, and soon, but where the store
// can still be asked what became of a write.
func TestEachFault(t *testing.T) {
	small, large := noise(1000), noise(3<<19)
	ops := operations(t, small, large)
	for vendor, serve := range map[string]func(t *testing.T) string{
		"s3": func(t *testing.T) string { _, url := newFakeS3(t); return url },
		"gs": func(t *testing.T) string { _, url := newFakeGCS(t); return url },
	} {
		connect := func(t *testing.T, server string) *objstore.Store {
			if vendor == "s3" {
				return open(t, "s3://bucket/ds?endpoint="+server, quick)
			}
			t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server, "http://"))
			return open(t, "gs://bucket/ds", quick)
		}
		eachFault(ops, func(op operation, when, kind string, fault faultproxy.Fault) {
			t.Run(fmt.Sprintf("%s/%s/%s/%s", vendor, op.name, when, kind), func(t *testing.T) {
				credentials(t)
				url := serve(t)
				direct := connect(t, url)
				for name, data := range map[string][]byte{"small": small, "large": large} {
					if err := direct.Upload(t.Context(), name, file(t, data)); err != nil {
						t.Fatal(err)
					}
				}
				version, err := direct.PutIf(t.Context(), "manifest", []byte("one"), "")
				if err != nil {
					t.Fatal(err)
				}
				proxied, _ := between(t, url, meet(when, fault))
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err = op.do(ctx, connect(t, proxied), version)
				if ctx.Err() != nil {
					t.Fatalf("no end in 20 s, then error %v", err)
				}
				op.judge(t, when, kind, direct, err)
			})
		})
	}
}

// eachFault calls try for each operation with each fault of the first request of a kind,
// of all requests that write, and of all.
func eachFault(ops []operation, try func(op operation, when, kind string, fault faultproxy.Fault)) {
	for kind, fault := range map[string]faultproxy.Fault{
		"busy": {Busy: true}, "lost": {Lost: true}, "cut": {Cut: true}, "cut later": {Cut: true, After: 60},
	} {
		for _, op := range ops {
			try(op, "first", kind, fault)
			try(op, "all", kind, fault)
			if op.on != "" {
				try(op, "writes", kind, fault)
			}
		}
	}
}

// meet gives a fault to the requests that when names. A body that is read on is the same
// request.
func meet(when string, fault faultproxy.Fault) faultproxy.Choose {
	met := map[string]bool{}
	return func(r *http.Request, _ int) faultproxy.Fault {
		write := r.Method != http.MethodGet && r.Method != http.MethodHead
		id := r.Method + r.URL.String()
		if when == "first" && met[id] || when == "writes" && !write {
			return faultproxy.Fault{}
		}
		met[id] = true
		return fault
	}
}

// judge holds what an operation said against its fault and against what the store holds.
func (op operation) judge(t *testing.T, when, kind string, direct *objstore.Store, err error) {
	t.Helper()
	switch state := errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist); {
	case (when == "first" || when == "writes" && op.want != nil) && !errors.Is(err, op.want):
		t.Errorf("error %v, want %v", err, op.want)
	case err == nil && op.want != nil, // the status of an answer may come before its body is cut
		state && (op.want == nil || when == "all" && kind[:3] != "cut"):
		t.Errorf("error %v, want one of the connection", err)
	case err == nil && op.makes != nil:
		if got, _, err := direct.Get(t.Context(), op.on); err != nil || !bytes.Equal(got, op.makes) {
			t.Errorf("store holds %d bytes, error %v, want what was written", len(got), err)
		}
	case err == nil && op.on != "":
		if _, err := direct.Size(t.Context(), op.on); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want an object that is removed", err)
		}
	case err != nil && strings.Contains(err.Error(), "\n"):
		t.Errorf("error %q, want one line", err)
	}
}
