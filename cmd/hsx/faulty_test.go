package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
)

// faultyCase is one entry of the kit's faulty/INDEX.json.
type faultyCase struct {
	Case, Path, Format, What string
	Needs                    string // the least knowledge that decides it
	Expect                   []finding
	Declared                 struct {
		Layers            []string
		IDs               []int
		Convention, Final string
	}
	Samples []struct {
		ID, File string
		Rows     int
		SHA256   map[string]string
	}
}

// finding is what a checker has to say of a case, in the kit's words.
type finding struct {
	Finding, Severity   string
	Member, Key, Global string
	Sample, Layer       string
	Block               *int
	Blocks              []int
	Token, Value        json.RawMessage
	Found, Files        json.RawMessage // of several types
	Tokens              json.RawMessage // the places, or how many there are
}

func faultyCases(t *testing.T, kit string) []faultyCase {
	t.Helper()
	var index struct{ Cases []faultyCase }
	hsxtest.ReadJSON(t, filepath.Join(kit, "faulty/INDEX.json"), &index)
	if len(index.Cases) < 110 {
		t.Fatalf("the kit has %d faulty cases, want at least 110", len(index.Cases))
	}
	return index.Cases
}

// words is how hsx says what the kit calls a finding.
func words(finding string) string {
	switch finding {
	case "truncated":
		return `truncated`
	case "empty_file":
		return `file is empty`
	case "bad_container":
		return `archive does not begin at byte 0|bytes follow the end|outside the directory|no data\.pkl|want little or big`
	case "bad_member_name":
		return `not a plain relative path`
	case "crc_mismatch":
		return `CRC`
	case "crc_absent":
		return `no CRC in the archive`
	case "compressed_member":
		return `is compressed .*want stored`
	case "duplicate_member":
		return `is there twice`
	case "duplicate_key":
		return `duplicate key`
	case "torchscript":
		return `TorchScript`
	case "missing_storage":
		return `the archive has no member`
	case "storage_size":
		return `declares \d+ elements of \d bytes, and member .* has \d+ bytes`
	case "tensor_bounds":
		return `needs \d+ elements from element \d+ of storage|negative size or stride|overflows 64 bits`
	case "tensor_too_large":
		return `has \d+ elements over storage`
	case "refused_global":
		return `refused global`
	case "refused_opcode": // OBJ comes after the global that it would call
		return `refused opcode|refused global "os\.system"`
	case "pickle_limit":
		return `nested more than|expands to more than|memo index is \d+, want less|holds more than`
	case "pickle_truncated":
		return `pickle is truncated`
	case "pickle_malformed":
		return `stack underflow|was never set|contains itself`
	case "unknown_record":
		return `of no known producer`
	case "gzip_ratio":
		return `bytes grow to more than`
	case "nested_compression":
		return `nested compression`
	case "name_content_mismatch":
		return `name ends in \.gz`
	case "header_length":
		return `header length is \d+`
	case "offsets":
		return `data offsets|data_offsets|trailing bytes`
	case "shape_size":
		return `needs \d+ bytes|more bytes than can be counted|in its shape|dimension of the shape`
	case "bad_json":
		return `JSON|whole numbers|want "\{"|__metadata__|is a string, want a number`
	case "bad_header":
		return `header has`
	case "unknown_dtype", "object_dtype":
		return `dtype`
	case "dtype_label":
		return `hidden_states is int16, want`
	case "unsupported_dtype":
		return `is float64, want`
	case "ragged_rows":
		return `rows are ragged`
	case "non_finite":
		return `non-finite`
	case "row_count":
		return `has 3 rows, want 6`
	case "fortran_order", "big_endian":
		return `Fortran|big-endian`
	case "none":
		return `^$`
	}
	return `no words for ` + finding
}

// TestFixtureFaultyContainers ingests every damaged file: it is refused with the
// reason that fits and its place, or read as what it was made of.
func TestFixtureFaultyContainers(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, _, kit string) {
		for _, c := range faultyCases(t, kit) {
			if strings.HasPrefix(c.Path, "containers/") {
				t.Run(c.Case, func(t *testing.T) {
					t.Parallel()
					testContainer(t, kit, c)
				})
			}
		}
	})
}

func testContainer(t *testing.T, kit string, c faultyCase) {
	if len(c.Expect) != 1 {
		t.Fatalf("the kit expects %d findings, want 1", len(c.Expect))
	}
	f := c.Expect[0]
	path := filepath.Join(kit, "faulty", c.Path)
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"ingest", "--out", ds, "--target", filepath.Join(kit, "model/config.json")}
	switch c.Format {
	case "safetensors":
		args = append(args, "--layers", "1,3,4,5", "--convention", "boundary")
	case "npy":
		args = append(args, "--map", "final="+c.Case)
		if f.Severity != "error" { // an array becomes a sample by the ids beside it
			path = besideIDs(t, kit, path)
		}
	default:
		args = append(args, "--layers", "0,2,3")
	}
	code, out, talk := hsx(append(args, path)...)
	if code != exitDone && code != exitBadData {
		t.Fatalf("%v: exit %d\n%s%s", args, code, out, talk)
	}
	fits := regexp.MustCompile(words(f.Finding))
	var rejected []format.Rejection
	if code == exitBadData {
		if rejected = rejections(t, ds); len(rejected) != 1 {
			t.Fatalf("rejected.jsonl has %d lines, want 1", len(rejected))
		}
		checkRejection(t, rejected[0], path, filepath.Base(path))
	}
	switch f.Severity {
	case "error", "error-or-ok":
		if code == exitDone && f.Severity == "error" {
			t.Fatalf("accepted %s, want a refusal\n%s%s", c.What, out, talk)
		}
	case "ok", "info":
		if code != exitDone {
			t.Fatalf("refused %s, want it read\n%s", c.What, talk)
		}
	case "warn":
		// That states are absurd under their label is for a check of the values, which
		// ingest is not.
		warned := strings.Contains(talk, "warning: ") && fits.MatchString(talk)
		if code == exitDone && !warned && c.Case != "st_f16_label" {
			t.Errorf("accepted without a warning that matches %q: %q", fits, talk)
		}
	default:
		t.Fatalf("severity %q is not known", f.Severity)
	}
	if code == exitDone {
		checkS03(t, kit, c, ds)
		return
	}
	r := rejected[0]
	if !fits.MatchString(r.Reason) {
		t.Errorf("%s: got reason %q, want one that matches %q", c.What, r.Reason, fits)
	}
	for _, name := range []string{f.Member, f.Key, f.Global} {
		if !strings.Contains(r.Reason, name) && r.Tensor != name {
			t.Errorf("%s: neither reason %q nor tensor %q has %q", c.What, r.Reason, r.Tensor, name)
		}
	}
}

// checkRejection compares what rejected.jsonl says of the input's state and of the
// place with the file and with the reason.
func checkRejection(t *testing.T, r format.Rejection, path, name string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().IsRegular() && (r.Path != name || r.Bytes != info.Size() || r.ModTime != info.ModTime().UnixNano()) {
		t.Errorf("rejected input is %+v, want %s of %d bytes and %s", r.Input, name, info.Size(), info.ModTime())
	}
	at := regexp.MustCompile(`at byte (\d+)`).FindStringSubmatch(r.Reason)
	want := int64(-1)
	if at != nil {
		want, _ = strconv.ParseInt(at[1], 10, 64) // digits
	}
	if r.Offset != want {
		t.Errorf("offset is %d, the reason says %q", r.Offset, r.Reason)
	}
}

// checkS03 compares a dataset of one accepted file with sample s03.
func checkS03(t *testing.T, kit string, c faultyCase, ds string) {
	t.Helper()
	like, layers := "specforge_eagle3", []string{"P0", "P2", "P3", "N"}
	switch c.Format {
	case "safetensors":
		like, layers = "vllm_connector", []string{"P0", "P2", "P3", "P4"}
	case "npy":
		like, layers = "npy_fp16", []string{"N"}
	}
	want := answer(t, kit, like, "s03")
	got := samples(t, ds)
	if len(got) != 1 {
		t.Fatalf("%s: dataset has %d samples, want 1", c.What, len(got))
	}
	for _, s := range got {
		if len(s.Tokens) != 16 || len(s.Hidden) != len(layers) {
			t.Fatalf("%s: %d tokens and %d states, want 16 and %d", c.What, len(s.Tokens), len(s.Hidden), len(layers))
		}
		for i, h := range s.Hidden {
			if g := sha(h.Rows); g != want[layers[i]] {
				t.Errorf("%s: %s has sha256 %s, want that of %s, %s", c.What, h.State.Column(), g, layers[i], want[layers[i]])
			}
		}
	}
}

// answer is the sha256 of the states of a sample as one of the kit's dumps has them.
func answer(t *testing.T, kit, dump, sample string) map[string]string {
	t.Helper()
	var index dumpIndex
	hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
	for _, d := range index.Dumps {
		for _, s := range d.Samples {
			if d.ID == dump && s.ID == sample {
				return s.SHA256
			}
		}
	}
	t.Fatalf("the kit has no sample %s of %s", sample, dump)
	return nil
}

// besideIDs copies an array into a new directory with the ids of s03.
func besideIDs(t *testing.T, kit, array string) string {
	t.Helper()
	dir := t.TempDir()
	copyFile(t, array, filepath.Join(dir, filepath.Base(array)))
	copyFile(t, filepath.Join(kit, "dumps/npy_fp16/s03/input_ids.npy"), filepath.Join(dir, "input_ids.npy"))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// rejections reads a dataset's rejected.jsonl; none when there is no such file.
func rejections(t *testing.T, ds string) []format.Rejection {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(ds, "rejected.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []format.Rejection
	for line := range bytes.Lines(data) {
		var r format.Rejection
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("rejected.jsonl: %v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}
