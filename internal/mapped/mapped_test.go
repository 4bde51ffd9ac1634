package mapped_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/internal/mapped"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{"empty": nil, "one": {7}, "pages": bytes.Repeat([]byte("hsx"), 5000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := mapped.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			m.Populate()
			if !bytes.Equal(m.Bytes(), want) {
				t.Errorf("Bytes() differ from the file")
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if err := m.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
	}
	if _, err := mapped.Open(t.TempDir()); err == nil {
		t.Error("Open of a directory: got no error")
	}
}

func TestGuardShrunkFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	readers := map[string]func() error{
		"go code":  func() error { return fmt.Errorf("read past the end: %d", m.Bytes()[1<<19]) },
		"assembly": func() error { crc32.ChecksumIEEE(m.Bytes()); return errors.New("read past the end") },
		"copy":     func() error { copy(make([]byte, 1<<20), m.Bytes()); return errors.New("read past the end") },
	}
	for name, read := range readers {
		if err := mapped.Guard(read); !errors.Is(err, mapped.ErrFault) {
			t.Errorf("%s: Guard: got error %v, want %v", name, err, mapped.ErrFault)
		}
	}
}

func TestGuardPassesOn(t *testing.T) {
	t.Parallel()
	want := errors.New("mine")
	if got := mapped.Guard(func() error { return want }); !errors.Is(got, want) {
		t.Errorf("Guard: got error %v, want %v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("Guard swallowed a panic that is not a fault")
		}
	}()
	_ = mapped.Guard(func() error { panic("bug") })
}

func TestIntact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(path string) error
		want   bool
	}{
		"untouched": {func(string) error { return nil }, true},
		"removed":   {os.Remove, true},
		"replaced": {func(path string) error {
			if err := os.WriteFile(path+".new", []byte("other"), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}, true},
		"shrunk":  {func(path string) error { return os.Truncate(path, 99) }, false},
		"grown":   {func(path string) error { return os.Truncate(path, 101) }, false},
		"written": {func(path string) error { return os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := mapped.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			if err := m.Intact(); (err == nil) != c.want || err != nil && !errors.Is(err, mapped.ErrFault) {
				t.Errorf("Intact: got error %v, want intact %v", err, c.want)
			}
		})
	}
}

func TestOpenPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mapped.Open(path); err == nil {
		t.Error("Open of a pipe: got no error")
	}
}
