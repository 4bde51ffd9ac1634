package torch_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/format/torch"
	"hsx/internal/hsxtest"
)

// checkDecodeError wants besides that no input makes its message long.
func checkDecodeError(t *testing.T, err error, size int) {
	t.Helper()
	hsxtest.CheckDecodeError(t, err, size)
	if len(err.Error()) > 4096 {
		t.Fatalf("got an error of %d bytes: %.100q", len(err.Error()), err.Error())
	}
}

func checkAlloc(t *testing.T, size int, got uint64) {
	t.Helper()
	if want := 1<<20 + 512*uint64(size); got > want {
		t.Fatalf("%d bytes of input allocated %d, want at most %d", size, got, want)
	}
}

// checkValue walks a value, counting what it meets.
func checkValue(t *testing.T, v format.Value, seen *int) {
	t.Helper()
	if *seen++; *seen > 2_000_000 {
		t.Fatal("value has more than 2000000 parts")
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
	case *format.Record:
		for _, f := range v.Fields {
			checkValue(t, f.Value, seen)
		}
	case []format.Value:
		for _, x := range v {
			checkValue(t, x, seen)
		}
	case *format.Tensor:
		if err := v.Check(); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatalf("got a value of type %T", v)
	}
}

func addGoldens(f *testing.F, add func([]byte)) {
	names, err := filepath.Glob("testdata/*t")
	if err != nil || len(names) == 0 {
		f.Fatalf("no goldens: %v", err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil {
			add(b)
		}
	}
}

func FuzzDecode(f *testing.F) {
	addGoldens(f, func(b []byte) { f.Add(b) })
	f.Add(layout{prefix: "x/", zip64: true, align: true}.build(members("\x80\x02}.", []byte("abcd"))...))
	f.Add(layout{prefix: "x/", noCRC: true}.build(members(dict("x", pickled(format.Uint16, 2)), []byte("abcd"))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, opt := range []torch.Options{{}, {SkipCRC: true}} {
			var a *torch.Archive
			var err error
			checkAlloc(t, len(data), hsxtest.Allocated(func() { a, err = torch.Decode(data, opt) }))
			if err != nil {
				checkDecodeError(t, err, len(data))
				continue
			}
			checkValue(t, a.Value, new(int))
			if a.Prefix == "" || strings.ContainsAny(a.Prefix, "/\\\x00") || a.Prefix == ".." {
				t.Fatalf("got prefix %q", a.Prefix)
			}
		}
	})
}

// FuzzPickle puts a pickle into an archive whose sums are right, so that the fuzzer
// need not find them.
func FuzzPickle(f *testing.F) {
	addGoldens(f, func(b []byte) {
		if _, rest, ok := bytes.Cut(b, []byte("\x80\x02")); ok {
			f.Add(append([]byte("\x80\x02"), rest[:min(len(rest), 700)]...))
		}
	})
	for _, s := range []string{
		dict("x", pickled(format.BFloat16, 8)), dict("x", pickled(format.Uint16, 8)),
		dict("x", tensor("torch\nFloatStorage", "0", 4, 0, []int64{2, 2}, []int64{1, 2})),
		"\x80\x02](K\x01M\x00\x01J\x00\x00\x00\x01\x8a\x01\xffG?\xe0\x00\x00\x00\x00\x00\x00\x88\x89N)]}e.",
	} {
		f.Add([]byte(s))
	}
	storage := make([]byte, 16)
	f.Fuzz(func(t *testing.T, pickle []byte) {
		var err error
		checkAlloc(t, len(pickle), hsxtest.Allocated(func() { err = torch.RunPickle(pickle) }))
		if err != nil {
			checkDecodeError(t, err, len(pickle))
		}
		checkDecodeError(t, torch.CheckBarePickle(pickle), len(pickle))

		data := archive(string(pickle), storage)
		var a *torch.Archive
		checkAlloc(t, len(data), hsxtest.Allocated(func() { a, err = torch.Decode(data, torch.Options{}) }))
		if err != nil {
			checkDecodeError(t, err, len(data))
			return
		}
		checkValue(t, a.Value, new(int))
	})
}

func FuzzZip(f *testing.F) {
	addGoldens(f, func(b []byte) { f.Add(b) })
	f.Add(layout{prefix: "x/", zip64: true, align: true}.build(members("\x80\x02}.", []byte("abcd"))...))
	f.Add(layout{prefix: "x/", descriptors: true}.build(members("\x80\x02}.", nil)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		var names []string
		var contents [][]byte
		var err error
		checkAlloc(t, len(data), hsxtest.Allocated(func() { names, contents, err = torch.Members(data) }))
		if err != nil {
			checkDecodeError(t, err, len(data))
			return
		}
		total := 0
		seen := map[string]bool{}
		for i, name := range names {
			if seen[name] || strings.HasPrefix(name, "/") || strings.Contains("/"+name+"/", "/../") {
				t.Fatalf("got member %q", name)
			}
			seen[name] = true
			total += 30 + len(contents[i])
		}
		if total > len(data) {
			t.Fatalf("members take %d bytes of %d", total, len(data))
		}
	})
}
