package export_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
)

// TestFaults fails each operation on the file system in turn: the error says so, and
// the next run completes the export.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, opt := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(format.NormPre), lengths()[:2]...)
			want := tree(t, written(t, planned(t, ds, opt)))
			for fail := int64(1); ; fail++ {
				dir := filepath.Join(t.TempDir(), "out")
				var ops atomic.Int64
				fs := &hsxtest.HookFS{FS: hasty{}, Half: fail%2 == 0, Before: func(hsxtest.Op) error {
					if ops.Add(1) == fail {
						return unix.ENOSPC
					}
					return nil
				}}
				plan := planned(t, ds, opt)
				plan.SetFS(fs)
				_, err := plan.Run(t.Context(), dir)
				if ops.Load() < fail {
					if err != nil {
						t.Fatalf("no operation failed: %v", err)
					}
					break
				}
				// Where the lock is closed at the end nothing can be lost.
				if !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("operation %d fails: got error %v, want %v", fail, err, unix.ENOSPC)
				}
				if _, statErr := os.Stat(dir); statErr == nil {
					complete(t, dir, want)
				}
				if _, err := planned(t, ds, opt).Run(t.Context(), dir); err != nil {
					t.Fatalf("after operation %d failed: %v", fail, err)
				}
				if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
					t.Fatalf("after operation %d failed (-want +got):\n%.1000s", fail, diff)
				}
			}
		})
	}
}

// complete wants each file under its own name to hold what it is to hold.
func complete(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for name, data := range tree(t, dir) {
		if !strings.HasSuffix(name, atomicfile.TempSuffix) && want[name] != data {
			t.Errorf("%s is there and not complete", name)
		}
	}
}

// TestPowerLoss stops the machine before each operation. Whatever of what was not synced
// is lost, each file is complete or absent, and the next run completes the export.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	for name, opt := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(format.NormPre), lengths()[:2]...)
			want := tree(t, written(t, planned(t, ds, opt)))
			for n := 0; ; n++ {
				disk := t.TempDir()
				fs, err := hsxtest.NewCrashFS(disk)
				if err != nil {
					t.Fatal(err)
				}
				fs.StopAt(n, n%2 == 0)
				plan := planned(t, ds, opt)
				plan.SetFS(fs)
				_, err = plan.Run(t.Context(), filepath.Join(disk, "out"))
				if fs.Stopped() != errors.Is(err, hsxtest.ErrCrash) {
					t.Fatalf("crash before operation %d: got error %v", n, err)
				}
				keeps := []hsxtest.Keep{hsxtest.KeepNothing, hsxtest.KeepEntries, hsxtest.KeepSome(uint64(n)), hsxtest.KeepAll}
				for _, i := range []int{n % 4, (n + 1) % 4} {
					lost, keep := []string{"all", "content", "some", "nothing"}[i], keeps[i]
					left := filepath.Join(t.TempDir(), "disk")
					if err := fs.Materialise(left, keep); err != nil {
						t.Fatal(err)
					}
					dir := filepath.Join(left, "out")
					if _, err := os.Stat(dir); err == nil {
						complete(t, dir, want)
					}
					if err == nil && !maps.Equal(tree(t, dir), want) {
						t.Errorf("power loss after the end, %s lost: files differ", lost)
					}
					if _, err := planned(t, ds, opt).Run(t.Context(), dir); err != nil {
						t.Fatalf("crash before operation %d, %s lost: %v", n, lost, err)
					}
					if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
						t.Fatalf("crash before operation %d, %s lost (-want +got):\n%.1000s", n, lost, diff)
					}
				}
				if !fs.Stopped() {
					break
				}
			}
		})
	}
}
