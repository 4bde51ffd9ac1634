package shard_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// manifestBytes is the manifest of a dataset of some shards.
func manifestBytes(f *testing.F) []byte {
	f.Helper()
	dir := filepath.Join(f.TempDir(), "ds")
	if _, err := play(dir, shard.WithFS(small(), hasty()), story()); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		f.Fatal(err)
	}
	return data
}

func FuzzManifest(f *testing.F) {
	good := manifestBytes(f)
	body := good[:bytes.LastIndex(good, []byte(",\n  \"xxh3\""))]
	if !bytes.Equal(shard.Seal(body), good) {
		f.Fatalf("a manifest ends in %q", good[len(body):])
	}
	f.Add(good, false)
	f.Add(body, true)
	f.Add(bytes.Replace(good, []byte(`"version": 1`), []byte(`"version": 7`), 1), false)
	for _, change := range [][2]string{
		{`"layer": 2`, `"layer": 3`}, {`"layer": 2`, `"layer": null, "norm": "post"`}, {`"rows": `, `"rows": -`},
		{`"000001.arrow"`, `"../../000001.arrow"`}, {`"bfloat16"`, `"int64"`}, {`"hsx"`, `"HSX"`}, {`"shards": [`, `"shards": [{},`},
		{`"000001.arrow"`, `"000000.arrow"`}, {`"000001.arrow"`, `"000001-0a.arrow"`},
		{`"format"`, `"FORMAT": "hsx", "format"`}, {`"xxh3": "`, `"xxh3": "00`}, {`"hidden_size": 4`, `"hidden_size": 9223372036854775807`},
	} {
		f.Add(bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1), true)
	}
	for _, s := range []string{"", "{}", "null", `{"format": "hsx", "version": 1`, `{"format": "hsx", "version": 1, "shards": [{},{},{},{},{}]`, `{"model": "another program's"}`, `{"version": "2.0"}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		if sealed {
			data = shard.Seal(data)
		}
		var m *shard.Manifest
		var err error
		// A shard of the shortest form, "{},", is a struct of 40 times its bytes, and a
		// growing slice of those is copied.
		if got, most := hsxtest.Allocated(func() { m, err = shard.DecodeManifest(data) }), uint64(400*len(data)+1<<20); got > most {
			t.Errorf("decode allocated %d bytes for %d bytes of input (error %v), want at most %d", got, len(data), err, most)
		}
		var c *shard.CorruptError
		if err != nil {
			if m != nil || !errors.As(err, &c) && !errors.Is(err, shard.ErrVersion) && !errors.Is(err, shard.ErrForeign) {
				t.Errorf("decode: got %v and error %v, want a *shard.CorruptError, %q or %q", m, err, shard.ErrVersion, shard.ErrForeign)
			}
			return
		}
		again, err := shard.EncodeManifest(m)
		if err != nil {
			t.Fatalf("encode of what was accepted: %v", err)
		}
		if !sealed && !bytes.Equal(again, data) {
			t.Errorf("encode: got\n%s\nwant\n%s", again, data)
		}
		// What another program sealed may have spaces elsewhere, but what it means stays.
		m2, err := shard.DecodeManifest(again)
		if err != nil {
			t.Fatalf("decode of what was encoded: %v\n%s", err, again)
		}
		if third, err := shard.EncodeManifest(m2); err != nil || !bytes.Equal(third, again) {
			t.Errorf("second encode: got %v\n%s\nwant\n%s", err, third, again)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(4), uint16(400), uint16(3000), uint8(0))
	f.Add(uint64(2), uint8(1), uint8(1), uint16(0), uint16(0), uint8(0xff))
	f.Add(uint64(3), uint8(9), uint8(64), uint16(60000), uint16(1), uint8(0x15))
	f.Fuzz(func(t *testing.T, seed uint64, n, hidden uint8, batch, cut uint16, flags uint8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		spec := hsxtest.Spec{
			Hidden: 1 + int(hidden)%80, Final: flags&1 != 0, Concat: flags&2 != 0,
			Norm:  []format.Norm{format.NormUnknown, format.NormPre, format.NormPost}[flags>>2%3],
			DType: []format.DType{format.BFloat16, format.Float16, format.Float32}[flags>>4%3],
		}
		for l := format.Embedding; l < 6; l++ {
			if rng.IntN(2) == 0 {
				spec.Layers = append(spec.Layers, l)
			}
		}
		if len(spec.Layers) == 0 {
			spec.Layers = []format.Layer{0}
		}
		var steps []step
		for i := range 1 + n%12 {
			spec.NoMask = rng.IntN(4) == 0
			steps = append(steps, step{sample: hsxtest.Sample(spec, int(i), 1+rng.IntN(60))})
			if rng.IntN(8) == 0 {
				steps = append(steps, step{commit: true})
			}
		}
		steps = append(steps, step{commit: true})
		dir := filepath.Join(t.TempDir(), "ds")
		opt := shard.WithFS(shard.Options{BatchBytes: int64(batch), ShardBytes: int64(cut)}, hasty())
		acked, err := play(dir, opt, steps)
		want := samplesOf(steps)
		if err != nil || acked != int64(len(want)) {
			t.Fatalf("write: got %d rows and error %v, want %d", acked, err, len(want))
		}
		checkDataset(t, dir, want)
	})
}

// FuzzShard puts any bytes, or a good shard with some of its bytes replaced, where
// the manifest lists the good one.
func FuzzShard(f *testing.F) {
	spec := hsxtest.Spec{Hidden: 2, Layers: []format.Layer{2, 30}, Final: true, Norm: format.NormPost, DType: format.BFloat16}
	dir := f.TempDir()
	samples := map[string]*format.Sample{}
	var steps []step
	for i := range 3 {
		spec.NoMask = i == 1
		s := hsxtest.Sample(spec, i, 2+i)
		samples[s.ID] = s
		steps = append(steps, step{sample: s})
	}
	if _, err := play(dir, shard.WithFS(shard.Options{BatchBytes: 60}, hasty()), append(steps, step{commit: true})); err != nil {
		f.Fatal(err)
	}
	name := filepath.Join(dir, "shards", "000000.arrow")
	good, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	ds := open(f, dir) // which reads nothing but the manifest
	f.Add(good, -1)
	f.Add(good[:len(good)-1], -1)
	f.Add([]byte{}, -1)
	for at := 0; at < len(good); at += 61 {
		f.Add([]byte{0xff, 0xff, 0xff, 0x7f}, at)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		if at >= 0 && at < len(good) {
			changed := bytes.Clone(good)
			copy(changed[at:], data)
			data = changed
		}
		// A fresh file: shortening one that is mapped would be another test.
		if err := errors.Join(os.Remove(name), os.WriteFile(name, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		same := bytes.Equal(data, good)
		if found := verify(t, ds); (len(found) == 0) != same {
			t.Errorf("Verify reports %q of a shard that is good: %t", found, same)
		}
		rows, bad := 0, 0
		got := hsxtest.Allocated(func() {
			for s, err := range ds.Samples(t.Context()) {
				switch {
				case err != nil && !shard.IsCorrupt(err):
					t.Errorf("Samples: got error %v, want a *shard.CorruptError", err)
				case err != nil:
					bad++
				case samples[s.ID] == nil:
					t.Errorf("Samples: got %q, which was never written", s.ID)
				default:
					rows++
					if d := hsxtest.Equal(s, samples[s.ID]); d != "" {
						t.Errorf("Samples: wrong data: %s", d)
					}
				}
			}
		})
		if same && (rows != len(samples) || bad > 0) || rows > len(samples) {
			t.Errorf("Samples: got %d rows and %d errors of a shard that is good: %t", rows, bad, same)
		}
		if most := uint64(100*len(data) + 1<<20); got > most {
			t.Errorf("Samples allocated %d bytes for a shard of %d, want at most %d", got, len(data), most)
		}
	})
}
