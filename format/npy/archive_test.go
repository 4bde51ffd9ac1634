package npy_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/npy"
	"hsx/internal/hsxtest"
)

// packed is one member as it stands in an archive, sound or not.
type packed struct {
	name     string
	method   uint16
	flags    uint16
	body     []byte // packed
	declared int
	crc      uint32
}

func stored(name string, data []byte) packed {
	return packed{name: name, method: zip.Store, body: data, declared: len(data), crc: crc32.ChecksumIEEE(data)}
}

func deflated(t testing.TB, name string, data []byte) packed {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p := stored(name, data)
	p.method, p.body = zip.Deflate, b.Bytes()
	return p
}

func archive(t testing.TB, members ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		f, err := w.CreateRaw(&zip.FileHeader{Name: m.name, Method: m.method, Flags: m.flags, CRC32: m.crc,
			CompressedSize64: uint64(len(m.body)), UncompressedSize64: uint64(m.declared)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(m.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchiveGolden(t *testing.T) {
	t.Parallel()
	want := map[string]format.Tensor{
		"input_ids":          {DType: format.Int64, Shape: []int64{16}},
		"loss_mask":          {DType: format.Uint8, Shape: []int64{16}},
		"aux_hidden_states":  {DType: format.Float16, Shape: []int64{16, 192}},
		"last_hidden_states": {DType: format.Float16, Shape: []int64{16, 64}},
	}
	states, err := npy.Decode(hsxtest.Golden(t, "float16.npy"))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	for _, name := range []string{"stored.npz", "deflated.npz"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := hsxtest.Golden(t, name)
			rec, err := npy.DecodeArchive(data)
			if err != nil {
				t.Fatalf("DecodeArchive(%s): %v", name, err)
			}
			if got, want := rec.Keys(), []string{"input_ids", "loss_mask", "aux_hidden_states", "last_hidden_states"}; !cmp.Equal(got, want) {
				t.Errorf("DecodeArchive(%s): got keys %q, want %q", name, got, want)
			}
			for key, want := range want {
				got := rec.Tensor(key)
				if got.Name != key || got.DType != want.DType || !cmp.Equal(got.Shape, want.Shape) {
					t.Errorf("DecodeArchive(%s): got %q %s %v, want %q %s %v", name, got.Name, got.DType, got.Shape, key, want.DType, want.Shape)
				}
			}
			last := rec.Tensor("last_hidden_states").Data
			if !bytes.Equal(last, states.Data) {
				t.Errorf("DecodeArchive(%s): the last hidden states differ from those of float16.npy", name)
			}
			at := bytes.Index(data, states.Data)
			if name == "stored.npz" && unsafe.SliceData(last) != unsafe.SliceData(data[at:]) {
				t.Errorf("DecodeArchive(%s): the states are a copy, want a view of the input", name)
			}
		})
	}
}

func TestArchiveForms(t *testing.T) {
	t.Parallel()
	one, two := file(1, dict("'|u1'", "False", "(1,)"), 1), file(3, dict("'>u2'", "True", "(1, 2)"), 4)
	long := encode(t, states(64, 64)) // zeros, which deflate to a thousandth
	for name, tc := range map[string]struct {
		data []byte
		want []string
	}{
		"empty":             {archive(t), []string{}},
		"stored":            {archive(t, stored("b.npy", one), stored("a.npy", two)), []string{"b", "a"}},
		"mixed":             {archive(t, deflated(t, "b.npy", one), stored("a.npy", two), deflated(t, "c.npy", long)), []string{"b", "a", "c"}},
		"nested name":       {archive(t, stored("layers/3.npy", one)), []string{"layers/3"}},
		"dots in the name":  {archive(t, stored("..a.npy.npy", one)), []string{"..a.npy"}},
		"well packed zeros": {archive(t, deflated(t, "a.npy", encode(t, states(512, 512)))), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, err := npy.DecodeArchive(tc.data)
			if err != nil {
				t.Fatalf("DecodeArchive: %v", err)
			}
			if got := rec.Keys(); !cmp.Equal(got, tc.want) {
				t.Errorf("DecodeArchive: got keys %q, want %q", got, tc.want)
			}
			for _, key := range tc.want {
				if err := rec.Tensor(key).Check(); err != nil {
					t.Errorf("Check: %v", err)
				}
			}
		})
	}
}

func TestArchiveFaults(t *testing.T) {
	t.Parallel()
	one := file(1, dict("'|u1'", "False", "(1,)"), 1)
	sound := archive(t, stored("a.npy", one))
	with := func(p packed, change func(*packed)) []byte {
		change(&p)
		return archive(t, p)
	}
	// A directory whose second entry points at the first member under another name.
	overlap := archive(t, stored("a.npy", one), stored("b.npy", one))
	second := bytes.LastIndex(overlap, []byte("PK\x01\x02"))
	copy(overlap[second+42:], []byte{0, 0, 0, 0})

	pack := deflated(t, "a.npy", one)
	for name, tc := range map[string]struct {
		data   []byte
		kind   error
		offset int64
		tensor string
		want   string
	}{
		"empty":         {nil, format.ErrCorrupt, 0, "", "file is empty"},
		"no zip":        {one, format.ErrUnsupported, 0, "", "want a zip member"},
		"prefix":        {append([]byte("#!x\n"), sound...), format.ErrUnsupported, 0, "", "want a zip member"},
		"cut":           {sound[:len(sound)-1], format.ErrCorrupt, int64(len(sound) - 1), "", "the file may be truncated"},
		"trailing":      {append(bytes.Clone(sound), 0), format.ErrCorrupt, int64(len(sound) + 1), "", "trailing bytes"},
		"twice":         {archive(t, stored("a.npy", one), stored("a.npy", one)), format.ErrCorrupt, 139, "a", `member "a.npy" is there twice`},
		"overlap":       {overlap, format.ErrCorrupt, 35, "b", `member "b.npy" overlaps "a.npy"`},
		"parent":        {archive(t, stored("../a.npy", one)), format.ErrCorrupt, -1, "../a.npy", "no plain relative path"},
		"absolute":      {archive(t, stored("/a.npy", one)), format.ErrCorrupt, -1, "/a.npy", "no plain relative path"},
		"backslash":     {archive(t, stored(`..\a.npy`, one)), format.ErrCorrupt, -1, `..\a.npy`, "no plain relative path"},
		"drive":         {archive(t, stored(`c:a.npy`, one)), format.ErrCorrupt, -1, `c:a.npy`, "no plain relative path"},
		"control":       {archive(t, stored("a\x1b.npy", one)), format.ErrCorrupt, -1, "a\x1b.npy", `member "a\x1b.npy"`},
		"not UTF-8":     {archive(t, stored("a\xff.npy", one)), format.ErrCorrupt, -1, "a\xff.npy", `member "a\xff.npy"`},
		"long name":     {archive(t, stored(fmt.Sprintf("%05000d.npy", 1), one)), format.ErrLimit, -1, "", "name of 5004 bytes"},
		"directory":     {archive(t, stored("a/", nil)), format.ErrCorrupt, -1, "a/", "no plain relative path"},
		"no array":      {archive(t, stored("a/data.pkl", one)), format.ErrUnsupported, -1, "a/data.pkl", "want names that end in .npy"},
		"only suffix":   {archive(t, stored(".npy", one)), format.ErrUnsupported, -1, ".npy", "is no array"},
		"encrypted":     {with(pack, func(p *packed) { p.flags = 1 }), format.ErrUnsupported, -1, "a", "is encrypted"},
		"method":        {with(pack, func(p *packed) { p.method = 14 }), format.ErrUnsupported, 35, "a", "compression method 14"},
		"stored size":   {with(stored("a.npy", one), func(p *packed) { p.declared-- }), format.ErrCorrupt, 35, "a", "is stored in 69 bytes, and the zip directory declares 68"},
		"checksum":      {with(pack, func(p *packed) { p.crc++ }), format.ErrCorrupt, 35, "a", `member "a.npy" has checksum`},
		"checksum 2":    {with(stored("a.npy", one), func(p *packed) { p.crc = 0 }), format.ErrCorrupt, 35, "a", "declares 00000000"},
		"declares more": {with(pack, func(p *packed) { p.declared++ }), format.ErrCorrupt, 35, "a", "deflate stream stops after 69 bytes of 70"},
		"declares less": {with(pack, func(p *packed) { p.declared-- }), format.ErrCorrupt, 35, "a", "deflate stream goes on after the 68 bytes"},
		"bad stream":    {with(pack, func(p *packed) { p.body = []byte("\xff\xff") }), format.ErrCorrupt, 35, "a", "deflate stream stops after 0 bytes"},
		"cut stream":    {with(pack, func(p *packed) { p.body = p.body[:len(p.body)-1] }), format.ErrCorrupt, 35, "a", "deflate stream"},
		"tail":          {with(pack, func(p *packed) { p.body = append(bytes.Clone(p.body), 0) }), format.ErrCorrupt, 35, "a", "deflate stream ends 1 bytes before"},
		"impossible":    {with(pack, func(p *packed) { p.declared = 1 << 40 }), format.ErrCorrupt, 35, "a", "more than deflate can make"},
		"bomb":          {archive(t, deflated(t, "a.npy", encode(t, states(1024, 1024)))), format.ErrLimit, 35, "a", "the archive may grow to 64 times its size"},
		"bomb in parts": {archive(t, deflated(t, "a.npy", encode(t, states(512, 512))), deflated(t, "b.npy", encode(t, states(1024, 512)))), format.ErrLimit, 685, "b", "the archive may grow to 64 times"},
		"bad member":    {archive(t, stored("a.npy", one[:68])), format.ErrCorrupt, 103, "a", `npz at byte 103: member "a.npy": array of shape [1] and type uint8 needs 1 bytes, has 0`},
		"bad deflated":  {archive(t, deflated(t, "a.npy", one[:68])), format.ErrCorrupt, 35, "a", `member "a.npy": array of shape [1]`},
		"empty member":  {archive(t, stored("a.npy", nil)), format.ErrCorrupt, 35, "a", `member "a.npy": file is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := npy.DecodeArchive(tc.data)
			hsxtest.CheckFault(t, err, format.DecodeError{Format: "npz", Kind: tc.kind, Offset: tc.offset, Tensor: tc.tensor}, tc.want)
		})
	}
}

// No cut, and no changed byte of an array, is read as good data.
func TestArchiveDamage(t *testing.T) {
	t.Parallel()
	one := file(1, dict("'<u2'", "False", "(3,)"), 6)
	data := archive(t, stored("a.npy", one), deflated(t, "b.npy", one))
	want, err := npy.DecodeArchive(data)
	if err != nil {
		t.Fatalf("DecodeArchive: %v", err)
	}
	for n := range data {
		if _, err := npy.DecodeArchive(data[:n]); err == nil {
			t.Errorf("DecodeArchive of the first %d bytes of %d: got no error", n, len(data))
		}
		bad := bytes.Clone(data)
		bad[n] ^= 0x20
		got, err := npy.DecodeArchive(bad)
		if err != nil {
			continue
		}
		for i, f := range got.Fields {
			if x := want.Tensor(want.Fields[i].Key); !bytes.Equal(x.Data, got.Tensor(f.Key).Data) {
				t.Errorf("DecodeArchive with byte %d changed: the data of %q differs", n, f.Key)
			}
		}
	}
}

// Not parallel: it counts the allocations of the whole process.
func TestArchiveAllocation(t *testing.T) {
	one := file(1, dict("'|u1'", "False", "(0,)"), 0)
	bomb := deflated(t, "bomb.npy", encode(t, states(2048, 2048)))
	claim := deflated(t, "claim.npy", one)
	claim.declared = 1 << 40
	var many []packed
	for small := deflated(t, "", one); len(many) < 1000; {
		small.name = fmt.Sprint(len(many), ".npy")
		many = append(many, small)
	}
	for name, data := range map[string][]byte{
		"bomb":         archive(t, bomb),
		"claims 1 TiB": archive(t, claim),
		"many members": archive(t, many...),
	} {
		t.Run(name, func(t *testing.T) {
			got := hsxtest.Allocated(func() { _, _ = npy.DecodeArchive(data) })
			if want := archiveBound(data); got > want {
				t.Errorf("DecodeArchive of %d bytes: allocated %d bytes, want at most %d", len(data), got, want)
			}
		})
	}
}

// archiveBound allows the limit on what deflate may make of an archive, the same again for
// arrays that need turning, and the working memory of zip and flate.
func archiveBound(data []byte) uint64 { return 2*(64*uint64(len(data))+1<<20) + 512<<10 }

func BenchmarkDecodeArchive(b *testing.B) {
	npyFile := encode(b, states(2048, 4096))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range npyFile[128:] {
		npyFile[128+i] = byte(random.NormFloat64() * 16) // about 6 bits of entropy
	}
	for name, data := range map[string][]byte{
		"stored":   archive(b, stored("a.npy", npyFile)),
		"deflated": archive(b, deflated(b, "a.npy", npyFile)),
	} {
		b.Run("fp16-2048x4096-"+name, func(b *testing.B) {
			b.SetBytes(int64(len(npyFile)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := npy.DecodeArchive(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
