package shard_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"hsx/internal/arrowmsg"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestForgedSchema reads shards whose schema claims more than it has, in a manifest
// that was forged to fit: the hashes are right, so only bounds protect the memory.
func TestForgedSchema(t *testing.T) { // alone: it measures what the process allocates
	dir := t.TempDir()
	write(t, dir, shard.Options{}, hsxtest.Sample(hsxtest.Spec{Hidden: 2, Layers: field(), Final: true}, 0, 3))
	path := filepath.Join(dir, "shards", "000000.arrow")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := arrowmsg.Read(good, 8)
	if err != nil {
		t.Fatal(err)
	}
	second, err := arrowmsg.Read(good, first.Next)
	if err != nil {
		t.Fatal(err)
	}
	manifest := *open(t, dir).Manifest()
	for at := range first.Meta.Bytes[3:] {
		for _, claim := range []uint32{20_000_000, 1 << 31} {
			bad := append([]byte(nil), good...)
			binary.LittleEndian.PutUint32(bad[first.Meta.At+at:], claim)
			meta := bad[first.Meta.At : first.Meta.At+len(first.Meta.Bytes)]
			m := manifest
			info := m.Shards[0]
			info.XXH3 = shard.Digest(xxh3.Hash128(bad).Bytes())
			info.Head = shard.Digest(xxh3.Hash128(append(meta[:len(meta):len(meta)], second.Meta.Bytes...)).Bytes())
			m.Shards = []shard.Info{info}
			data, err := shard.EncodeManifest(&m)
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string][]byte{path: bad, filepath.Join(dir, "manifest.json"): data} {
				if err := os.WriteFile(name, content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := readAllocates(t, dir); got > 4<<20 {
				t.Fatalf("reading a schema that claims %d at byte %d allocated %d bytes", claim, first.Meta.At+at, got)
			}
		}
	}
}

// readAllocates is what reading all samples allocates; errors are as good as samples.
func readAllocates(t *testing.T, dir string) uint64 {
	t.Helper()
	return hsxtest.Allocated(func() {
		for _, err := range open(t, dir).Samples(context.Background()) {
			_ = err
		}
	})
}
