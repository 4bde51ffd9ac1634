package zhuff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hsx/internal/hsxtest"
	"hsx/internal/zhuff"
)

// encode is a whole frame.
func encode(content []byte) []byte {
	var e zhuff.Encoder
	frame := zhuff.AppendHeader(nil, len(content))
	for at := 0; at < len(content); at += zhuff.BlockBytes {
		end := min(at+zhuff.BlockBytes, len(content))
		frame = e.AppendBlock(frame, content[at:end], end == len(content))
	}
	return frame
}

// decode reads a frame's blocks from the last to the first.
func decode(frame []byte, n int) ([]byte, error) {
	f, err := zhuff.Open(frame, n)
	if err != nil {
		return nil, err
	}
	var d zhuff.Decoder
	out := make([]byte, n)
	buf := make([]byte, zhuff.BlockBytes)
	for k := f.Blocks() - 1; k >= 0; k-- {
		part, err := d.Block(buf, f, k)
		if err != nil {
			return nil, err
		}
		copy(out[k*zhuff.BlockBytes:], part)
	}
	return out, nil
}

// check holds what any content must do: come back through this package and through
// another decoder, within the bounds that are promised.
func check(t *testing.T, content []byte) {
	t.Helper()
	frame := encode(content)
	most := zhuff.HeaderBytes
	for left := len(content); left > 0; left -= zhuff.BlockBytes {
		most += zhuff.BlockBound(min(left, zhuff.BlockBytes))
	}
	if len(frame) > most || len(content) > zhuff.MaxRatio*len(frame) {
		t.Errorf("frame has %d bytes for %d, want at most %d and no ratio above %d", len(frame), len(content), most, zhuff.MaxRatio)
	}
	got, err := decode(frame, len(content))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("decode: other bytes, or error %v", err)
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if got, err := dec.DecodeAll(frame, nil); err != nil || !bytes.Equal(got, content) {
		t.Errorf("zstd: other bytes, or error %v", err)
	}
}

// geometric is n bytes of which few values make up most.
func geometric(rng *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = 0x3c
		for rng.IntN(2) == 0 {
			out[i]++
		}
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 5, 6, 63, 64, 65, 255, 256, 257, 1000, zhuff.BlockBytes - 1, zhuff.BlockBytes, zhuff.BlockBytes + 1, 3*zhuff.BlockBytes + 7} {
		random := make([]byte, n)
		for i := range random {
			random[i] = byte(rng.Uint32())
		}
		odd := bytes.Repeat([]byte{7}, n)
		odd[n/2] = 8
		for name, content := range map[string][]byte{
			"random": random, "skewed": geometric(rng, n), "one value": bytes.Repeat([]byte{7}, n), "one odd": odd,
		} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				check(t, content)
			})
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("states"), uint16(1), uint8(0))
	f.Add(bytes.Repeat([]byte{0x3f, 0xbf, 0x40}, 50), uint16(2000), uint8(3))
	f.Add([]byte{0}, uint16(65535), uint8(9))
	f.Fuzz(func(t *testing.T, part []byte, times uint16, extra uint8) {
		if len(part)*int(times) > 1<<20 {
			times = uint16(1 << 20 / len(part))
		}
		content := append(bytes.Repeat(part, int(times)), part[:min(len(part), int(extra))]...)
		if len(content) > 0 {
			check(t, content)
		}
	})
}

func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, content := range [][]byte{geometric(rng, 300), geometric(rng, zhuff.BlockBytes+100), bytes.Repeat([]byte{1}, 2000)} {
		f.Add(encode(content), uint32(len(content)))
	}
	f.Fuzz(func(t *testing.T, frame []byte, n uint32) {
		if n > 1<<24 { // what the caller makes room for
			return
		}
		var err error
		got := hsxtest.Allocated(func() {
			var fr *zhuff.Frame
			if fr, err = zhuff.Open(frame, int(n)); err != nil {
				return
			}
			var d zhuff.Decoder
			buf := make([]byte, zhuff.BlockBytes)
			for k := range fr.Blocks() {
				if _, berr := d.Block(buf, fr, k); berr != nil {
					err = berr
				}
			}
		})
		if most := uint64(16*len(frame) + 2<<20); got > most {
			t.Errorf("allocated %d bytes for %d, want at most %d", got, len(frame), most)
		}
		if err != nil {
			return
		}
		content, err := decode(frame, int(n))
		if err != nil {
			t.Fatal(err)
		}
		dec, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		if got, err := dec.DecodeAll(frame, nil); err != nil || !bytes.Equal(got, content) {
			t.Errorf("zstd reads other bytes, or error %v", err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	content := geometric(rand.New(rand.NewPCG(5, 6)), 8<<20)
	var e zhuff.Encoder
	dst := make([]byte, 0, len(content)+4096)
	b.Run("huffman", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			dst = zhuff.AppendHeader(dst[:0], len(content))
			for at := 0; at < len(content); at += zhuff.BlockBytes {
				dst = e.AppendBlock(dst, content[at:at+zhuff.BlockBytes], at+zhuff.BlockBytes == len(content))
			}
		}
		b.ReportMetric(float64(len(dst))/float64(len(content)), "ratio")
	})
	b.Run("zstd", func(b *testing.B) {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			dst = enc.EncodeAll(content, dst[:0])
		}
		b.ReportMetric(float64(len(dst))/float64(len(content)), "ratio")
	})
}

func BenchmarkDecode(b *testing.B) {
	content := geometric(rand.New(rand.NewPCG(5, 6)), 8<<20)
	frame := encode(content)
	b.Run("huffman", func(b *testing.B) {
		f, err := zhuff.Open(frame, len(content))
		if err != nil {
			b.Fatal(err)
		}
		var d zhuff.Decoder
		buf := make([]byte, zhuff.BlockBytes)
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			for k := range f.Blocks() {
				if _, err := d.Block(buf, f, k); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("zstd", func(b *testing.B) {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			b.Fatal(err)
		}
		defer dec.Close()
		out := make([]byte, 0, len(content))
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if out, err = dec.DecodeAll(frame, out[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
