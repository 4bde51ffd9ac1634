package main

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/format"
)

// hidden is the hidden size of the kit's model.
const hidden = 64

// refusals is what ingest refuses of a case's directory: a file's path and the reason.
// What is wrong with values alone is taken as it is, for checks of the data to find.
func refusals(name string) map[string]string {
	const row = "rows_0-2000/"
	switch name {
	case "mask_length":
		return map[string]string{
			row + "data_0.ckpt": `^loss_mask has 63 values for 64 tokens`,
			row + "data_1.ckpt": `^loss_mask has 98 values for 97 tokens`,
		}
	case "suffix_only":
		return map[string]string{row + "data_1.ckpt": `^hidden_state has 65 rows for 97 tokens`}
	case "two_blocks":
		return map[string]string{row + "data_1.ckpt": `^aux_hidden_state is 128 wide.*width 192`}
	case "mixed_dtype":
		return map[string]string{
			row + "data_2.ckpt": `P_0 float16, want P_0 bfloat16`,
			row + "data_3.ckpt": `final \(post\) float32, want final \(post\) bfloat16`,
		}
	case "duplicate_ids":
		return map[string]string{"b.pt": `^id "conv-7" is taken already by a sample of a\.pt`}
	case "truncated_in_directory":
		return map[string]string{row + "data_2.ckpt": `truncated: it ends after 17961 bytes`}
	case "speculators_token_mismatch":
		return map[string]string{"hidden_states/hs_1.safetensors": `^token_ids differs from row 1 of the dataset at position 30: \d+, want \d+`}
	case "speculators_rows_swapped":
		return map[string]string{
			"hidden_states/hs_1.safetensors": `^token_ids differs from row 1 of the dataset at position \d+`,
			"hidden_states/hs_2.safetensors": `^token_ids differs from row 2 of the dataset at position \d+`,
		}
	}
	return nil
}

// TestFixtureFaultyDirectories ingests every directory in which something is wrong:
// bad files are refused with the numbers, and the rest comes out bit for bit.
func TestFixtureFaultyDirectories(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, _, kit string) {
		for _, c := range faultyCases(t, kit) {
			if len(c.Samples) > 0 {
				t.Run(c.Case, func(t *testing.T) {
					t.Parallel()
					testDirectory(t, kit, c)
				})
			}
		}
	})
}

// ingestCase ingests a case's directory into a new dataset.
func ingestCase(t *testing.T, kit string, c faultyCase, more ...string) (ds string, code int, talk string) {
	t.Helper()
	ds = filepath.Join(t.TempDir(), "ds")
	args := []string{"ingest", "--out", ds, "--target", filepath.Join(kit, "model/config.json"), "--layers", "0,2,3"}
	if c.Format == "speculators" {
		args = append(args, "--layers", "1,3,4,5", "--convention", "boundary")
	}
	code, _, talk = hsx(append(append(args, more...), filepath.Join(kit, "faulty", c.Path))...)
	return ds, code, talk
}

func testDirectory(t *testing.T, kit string, c faultyCase) {
	ds, code, talk := ingestCase(t, kit, c)
	refused := refusals(c.Case)
	if want := map[bool]int{true: exitBadData, false: exitDone}[refused != nil]; code != want {
		t.Fatalf("%s: exit %d, want %d\n%s", c.What, code, want, talk)
	}
	if c.Case == "speculators_missing_row" && !strings.Contains(talk, "warning: state.json: 1 of 3 rows have no hidden-state file: 1\n") {
		t.Errorf("no warning of the missing row: %q", talk)
	}
	rejected := rejections(t, ds)
	if len(rejected) != len(refused) {
		t.Errorf("rejected.jsonl has %d lines, want %d", len(rejected), len(refused))
	}
	for _, r := range rejected {
		if want := refused[r.Path]; want == "" || !regexp.MustCompile(want).MatchString(r.Reason) {
			t.Errorf("%s is rejected: %q, want %q", r.Path, r.Reason, want)
		}
		checkRejection(t, r, filepath.Join(kit, "faulty", c.Path, r.Path), r.Path)
	}
	got := samples(t, ds)
	if want := len(c.Samples) - len(refused); len(got) != want {
		t.Errorf("dataset has %d samples, want %d", len(got), want)
	}
	for _, want := range c.Samples {
		s := got[key(want.File, 0)]
		if (s == nil) != (refused[want.File] != "") {
			t.Errorf("%s: sample is %v, refused is %q", want.File, s != nil, refused[want.File])
		}
		if s != nil {
			checkRaw(t, s, filepath.Join(kit, "faulty", c.Path, want.File))
			checkPlaces(t, s, want.ID, c.Expect)
		}
	}
}

// checkPlaces compares the ids and mask values that are wrong with what the kit put
// there.
func checkPlaces(t *testing.T, s *format.Sample, id string, expect []finding) {
	t.Helper()
	for _, f := range expect {
		if f.Sample != id || f.Finding != "token_out_of_range" && f.Finding != "loss_mask_value" {
			continue
		}
		var at, want int
		if err := json.Unmarshal(f.Token, &at); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(f.Value, &want); err != nil {
			t.Fatal(err)
		}
		got := int(s.Tokens[at])
		if f.Finding == "loss_mask_value" {
			got = int(s.LossMask[at])
		}
		if got != want {
			t.Errorf("%s of %s at %d: got %d, want %d", f.Finding, id, at, got, want)
		}
	}
}

// checkRaw compares a sample's states with the bytes of its file, which are cut out
// here without the codecs: each [T, n*hidden] array is n states, the widest first.
func checkRaw(t *testing.T, s *format.Sample, path string) {
	t.Helper()
	size := s.Hidden[0].Rows.DType.Size()
	arrays := rawArrays(t, path)
	slices.SortStableFunc(arrays, func(a, b []byte) int { return len(b) - len(a) })
	var want [][]byte
	row := hidden * size
	for _, a := range arrays {
		n := len(a) / (len(s.Tokens) * row)
		if n*len(s.Tokens)*row != len(a) {
			continue // ids or a mask
		}
		for block := range n {
			var b []byte
			for i := range len(s.Tokens) {
				at := (i*n + block) * row
				b = append(b, a[at:at+row]...)
			}
			want = append(want, b)
		}
	}
	if len(s.Hidden) != len(want) {
		t.Fatalf("%s: %d states, want %d", path, len(s.Hidden), len(want))
	}
	for i, h := range s.Hidden {
		var got []byte
		for j := range h.Rows.N {
			got = append(got, h.Rows.Row(j)...)
		}
		if !bytes.Equal(got, want[i]) {
			t.Errorf("%s: %s differs from the bytes of the file", path, h.State.Column())
		}
	}
}

// rawArrays is the contents of the storages of a torch file, or of the tensors of a
// safetensors file.
func rawArrays(t *testing.T, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var arrays [][]byte
	if filepath.Ext(path) == ".safetensors" {
		n := binary.LittleEndian.Uint64(data)
		var tensors map[string]struct {
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(data[8:8+n], &tensors); err != nil {
			t.Fatal(err)
		}
		for _, v := range tensors {
			arrays = append(arrays, data[8+int(n)+v.Offsets[0]:8+int(n)+v.Offsets[1]])
		}
		return arrays
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		if filepath.Base(filepath.Dir(f.Name)) != "data" {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		a, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		arrays = append(arrays, a)
	}
	return arrays
}

// TestFixtureFaultyTrim takes the padding off a batch: the padded sample is then the
// one that was run alone.
func TestFixtureFaultyTrim(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, _, kit string) {
		for _, c := range faultyCases(t, kit) {
			if c.Case != "padded_tail" {
				continue
			}
			ds, code, talk := ingestCase(t, kit, c, "--trim-padding")
			if code != exitDone {
				t.Fatalf("exit %d\n%s", code, talk)
			}
			got := samples(t, ds)
			for _, want := range c.Samples {
				s := got[key(want.File, 0)]
				if s == nil || len(s.Tokens) != want.Rows || len(s.LossMask) != want.Rows {
					t.Fatalf("%s: got %+v, want %d tokens", want.File, s, want.Rows)
				}
				for i, layer := range []string{"P0", "P2", "P3", "N"} {
					if g := sha(s.Hidden[i].Rows); g != want.SHA256[layer] {
						t.Errorf("%s %s: sha256 %s, want %s", want.File, layer, g, want.SHA256[layer])
					}
				}
			}
		}
	})
}

// TestFixtureFaultyLock reads files beside which vLLM's connector put a lock.
func TestFixtureFaultyLock(t *testing.T) {
	t.Parallel()
	const file = "cmpl-0123456789abcdef0123456789abcdef-0.safetensors"
	for name, c := range map[string]struct {
		dir      string
		release  time.Duration // when the lock is dropped, 0: at the end, -1: it is not held
		timeout  string
		code     int
		rejected string
		warned   string
	}{
		"held":              {dir: "whole", timeout: "200ms", code: exitBadData, rejected: `^locked by its writer: .*\.lock was held for 200ms`},
		"released":          {dir: "whole", release: 100 * time.Millisecond, timeout: "20s"},
		"free":              {dir: "whole", release: -1, timeout: "200ms"},
		"half written":      {dir: "half_written", timeout: "200ms", code: exitBadData, rejected: `^locked by its writer`},
		"half written free": {dir: "half_written", release: -1, timeout: "200ms", code: exitBadData, rejected: `"hidden_states" .*truncated`},
		"orphan":            {dir: "orphan", release: -1, timeout: "200ms", warned: "warning: " + file + ".lock: lock without the file it guards"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit := kits(t)["small"]
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(kit, "faulty/vllm_lock", c.dir))); err != nil {
				t.Fatal(err)
			}
			if c.release >= 0 {
				lock, err := os.OpenFile(filepath.Join(dir, file+".lock"), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				fd := int(lock.Fd())
				if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
					t.Fatal(err)
				}
				released := make(chan struct{})
				release := func() {
					_ = unix.Flock(fd, unix.LOCK_UN) // closing drops it too
					close(released)
				}
				if c.release > 0 {
					time.AfterFunc(c.release, release)
				} else {
					defer release()
				}
				t.Cleanup(func() {
					<-released
					_ = lock.Close()
				})
			}
			ds := filepath.Join(t.TempDir(), "ds")
			code, out, talk := hsx("ingest", "--out", ds, "--target", filepath.Join(kit, "model"), "--layers", "1,3,4,5",
				"--convention", "boundary", "--lock-timeout", c.timeout, dir)
			if code != c.code || !strings.Contains(talk, c.warned) {
				t.Fatalf("exit %d, want %d and %q\n%s%s", code, c.code, c.warned, out, talk)
			}
			rejected := rejections(t, ds)
			switch {
			case c.rejected != "":
				if len(rejected) != 1 || rejected[0].Path != file || !regexp.MustCompile(c.rejected).MatchString(rejected[0].Reason) {
					t.Errorf("rejected.jsonl is %+v, want a line of %s that matches %q", rejected, file, c.rejected)
				}
			case c.warned == "":
				checkS03(t, kit, faultyCase{Format: "safetensors"}, ds)
			}
		})
	}
}
