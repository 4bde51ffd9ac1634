//go:build objects

package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

// quick keeps pauses short: the faults here are made, not had.
func quick() objstore.Options {
	return objstore.Options{MaxBackoff: 10 * time.Millisecond, PartBytes: 1 << 20, Concurrency: 4}
}

func TestStore(t *testing.T) {
	url := startServer(t)
	s, ctx := open(t, "s3://bucket/some/prefix", url, quick()), t.Context()
	for name, size := range map[string]int{"empty": 0, "small+ %": 1000, "parts": 33<<20 + 1} {
		data := noise(size)
		if err := s.Upload(ctx, "shards/"+name, file(t, data)); err != nil {
			t.Fatal(err)
		}
		got, version, err := s.Get(ctx, "shards/"+name)
		if err != nil || !bytes.Equal(got, data) || version == "" {
			t.Errorf("%s: %d bytes in version %q, error %v, want %d as written", name, len(got), version, err, size)
		}
		if size > 0 {
			if err := s.ReadRange(ctx, "shards/"+name, make([]byte, size), 1); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: error %v, want io.ErrUnexpectedEOF", name, err)
			}
			if err := s.ReadRange(ctx, "shards/"+name, make([]byte, 1), int64(size)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: error %v, want io.ErrUnexpectedEOF", name, err)
			}
		}
		to := open(t, "s3://other/copies", url, quick())
		if err := to.Copy(ctx, s, "shards/"+name, name); err != nil {
			t.Error(err)
		} else if got, _, err := to.Get(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("copy of %s differs, error %v", name, err)
		}
	}
	n := 0
	for o, err := range s.List(ctx, "shards/") {
		if err != nil || time.Since(o.Modified) > time.Hour {
			t.Fatal(o, err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d objects are listed, want 3", n)
	}
	if err := s.Remove(ctx, "shards/empty"); err != nil {
		t.Error(err)
	}
	if err := s.Remove(ctx, "shards/empty"); err != nil {
		t.Errorf("error %v, want none for what is removed", err)
	}
	if _, _, err := s.Get(ctx, "shards/empty"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if _, err := s.Size(ctx, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// TestConditions: of writers at once one wins, also when the answers are lost.
func TestConditions(t *testing.T) {
	url := startServer(t)
	var lost atomic.Int32
	lossy, _ := between(t, url, func(r *http.Request, nth int) faultproxy.Fault {
		f := faultproxy.Fault{Lost: r.Method == http.MethodPut && nth%2 == 0}
		if f.Lost {
			lost.Add(1)
		}
		return f
	})
	ctx, version := t.Context(), ""
	for round := range 5 {
		var winners []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 4 {
			s := open(t, "s3://bucket/ds", []string{url, lossy}[i%2], quick())
			wg.Go(func() {
				v, err := s.PutIf(ctx, "manifest.json", fmt.Append(nil, round, " by ", i), version)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, v)
				} else if !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			t.Fatalf("round %d: %d writers won, want one", round, len(winners))
		}
		version = winners[0]
	}
	s := open(t, "s3://bucket/ds", lossy, quick())
	if v, err := s.PutIf(ctx, "alone.json", []byte("x"), ""); err != nil || v == "" {
		t.Errorf("version %q, error %v, want no conflict with oneself", v, err)
	}
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
	if err := s.Remove(ctx, "manifest.json"); err != nil {
		t.Error(err)
	}
	if _, err := s.PutIf(ctx, "manifest.json", nil, version); !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v, want fs.ErrExist after a removal", err)
	}
}

// TestStoreUnderFaults: with a share of each fault, all is done as without.
func TestStoreUnderFaults(t *testing.T) {
	url := startServer(t)
	for seed := range uint64(4) {
		proxied, p := between(t, url, faultproxy.Random(seed, 0.15, 0.1, 0.2, 5*time.Millisecond))
		s := open(t, fmt.Sprint("s3://bucket/", seed), proxied, quick())
		ctx, data := t.Context(), noise(16<<20+1)
		if err := s.Upload(ctx, "shard", file(t, data)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(data))
		if err := s.ReadRange(ctx, "shard", got, 0); err != nil || !bytes.Equal(got, data) {
			t.Errorf("seed %d: read differs, error %v", seed, err)
		}
		version, err := "", error(nil)
		for i := range 10 {
			if version, err = s.PutIf(ctx, "manifest", fmt.Append(nil, i), version); err != nil {
				t.Fatal(err)
			}
		}
		faults := 0
		for _, c := range p.Counts() {
			faults += c.Faults
		}
		if faults < 5 {
			t.Errorf("seed %d: %d faults, want some", seed, faults)
		}
	}
}

// TestReplaced: parts of two states never mix.
func TestReplaced(t *testing.T) {
	url := startServer(t)
	s, other := open(t, "s3://bucket", url, quick()), open(t, "s3://bucket", url, quick())
	ctx, p := t.Context(), make([]byte, 4)
	for i, state := range []string{"old state", "new state"} {
		if err := other.Upload(ctx, "shard", file(t, []byte(state))); err != nil {
			t.Fatal(err)
		}
		if err := s.ReadRange(ctx, "shard", p, 0); errors.Is(err, objstore.ErrChanged) != (i == 1) {
			t.Errorf("%s: error %v", state, err)
		}
	}
}

// TestUploads: what an upload that was killed leaves is listed, and goes.
func TestUploads(t *testing.T) {
	url := startServer(t)
	ctx := t.Context()
	proxied, _ := between(t, url, func(r *http.Request, _ int) faultproxy.Fault {
		kind := faultproxy.Kind(r) // a server that goes away in the middle, before the abort
		return faultproxy.Fault{Busy: r.URL.Query().Get("partNumber") == "3" || kind == "DELETE upload"}
	})
	if err := open(t, "s3://bucket/ds", proxied, quick()).Upload(ctx, "shards/1", file(t, noise(21<<20))); err == nil {
		t.Fatal("upload succeeded without its third part")
	}
	s, n := open(t, "s3://bucket/ds", url, quick()), 0
	if _, err := s.Size(ctx, "shards/1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist: an upload that is not complete is absent", err)
	}
	for u, err := range s.Uploads(ctx, "") {
		if err != nil || u.Name != "shards/1" || time.Since(u.Begun) > time.Hour {
			t.Fatal(u, err)
		}
		n++
		for range 2 {
			if err := s.Abort(ctx, u); err != nil {
				t.Error(err)
			}
		}
	}
	for u, err := range s.Uploads(ctx, "") {
		t.Error(u, err)
	}
	if n != 1 {
		t.Errorf("%d uploads were left, want one", n)
	}
}

func TestRefusals(t *testing.T) {
	url := startServer(t)
	_, _, err := open(t, "s3://missing", url, quick()).Get(t.Context(), "x")
	wantError(t, err, "bucket missing does not exist")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret+"1")
	_, _, err = open(t, "s3://bucket", url, quick()).Get(t.Context(), "x")
	wantError(t, err, "credentials (SignatureDoesNotMatch)")
	t.Setenv("AWS_ACCESS_KEY_ID", keyID+"1")
	_, _, err = open(t, "s3://bucket", url, quick()).Get(t.Context(), "x")
	wantError(t, err, "No user exists with the provided access key ID") // the server's own code for it
}
