package export_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/google/go-cmp/cmp"

	"hsx/export"
	"hsx/format"
	"hsx/format/hfdata"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/safetensors"
	"hsx/format/torch"
	"hsx/internal/hsxtest"
)

// TestLayout lists the files of every target, with and without splits.
func TestLayout(t *testing.T) {
	t.Parallel()
	rows := []string{"rows_0-2000/data_0.ckpt", "rows_0-2000/data_1.ckpt", "rows_0-2000/data_2.ckpt"}
	tests := map[string]struct {
		norm format.Norm
		want []string
	}{
		"specforge-eagle3": {format.NormPost, rows},
		"specforge-dflash": {format.NormPost, rows},
		"specforge-dspark": {format.NormPost, rows},
		"torchspec":        {format.NormPost, rows},
		"angelslim":        {format.NormPost, []string{"rows_0-5000/data_0.ckpt", "rows_0-5000/data_1.ckpt", "rows_0-5000/data_2.ckpt"}},
		"modelopt":         {format.NormPre, []string{"sample-0.pt", "sample-1.pt", "sample-2.pt"}},
		"safetensors":      {format.NormUnknown, []string{"sample-0.safetensors", "sample-1.safetensors", "sample-2.safetensors"}},
		"speculators": {format.NormPre, []string{
			"data-00000-of-00001.arrow", "dataset_info.json",
			"hidden_states/hs_0.safetensors", "hidden_states/hs_1.safetensors", "hidden_states/hs_2.safetensors", "state.json",
		}},
		"datasets": {format.NormPre, []string{"data-00000-of-00001.arrow", "dataset_info.json", "state.json"}},
		"npy": {format.NormPost, []string{
			"sample-0/final.npy", "sample-0/input_ids.npy", "sample-0/layer_2.npy", "sample-0/layer_30.npy", "sample-0/layer_58.npy", "sample-0/loss_mask.npy",
			"sample-1/final.npy", "sample-1/input_ids.npy", "sample-1/layer_2.npy", "sample-1/layer_30.npy", "sample-1/layer_58.npy", "sample-1/loss_mask.npy",
			"sample-2/final.npy", "sample-2/input_ids.npy", "sample-2/layer_2.npy", "sample-2/layer_30.npy", "sample-2/layer_58.npy", "sample-2/loss_mask.npy",
		}},
	}
	for _, target := range export.Targets() {
		tt, ok := tests[target.Name]
		if !ok {
			t.Errorf("target %s has no test", target.Name)
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(tt.norm), 2, 3, 40)
			got := tree(t, written(t, planned(t, ds, export.Options{To: target.Name})))
			delete(got, export.MappingName)
			if diff := cmp.Diff(tt.want, names(got)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			// Every sample goes to one of two splits, the other is there and empty.
			split := tree(t, written(t, planned(t, ds, export.Options{To: target.Name, Limit: 1, Splits: []export.Split{{"a", 0.5}, {"b", 0.5}}})))
			for name := range split {
				dir, _, _ := strings.Cut(name, "/")
				if dir != "a" && dir != "b" && dir != export.MappingName && dir != "dataset_dict.json" {
					t.Errorf("file %s lies outside of the splits", name)
				}
			}
			if arrow := strings.Join(names(split), " "); target.Dataset && (!strings.Contains(arrow, "a/data-00000-of-00001.arrow") || !strings.Contains(arrow, "b/data-00000-of-00001.arrow")) {
				t.Errorf("files are %s, want Arrow files in both splits", arrow)
			}
		})
	}
}

// decoded is the values of one file, or of a directory of arrays.
func decoded(t *testing.T, target producer.TargetDescription, files map[string]string, name string) *format.Record {
	t.Helper()
	if target.Container == producer.Arrays {
		rec := &format.Record{}
		for file, data := range files {
			if dir, base := filepath.Split(file); dir == name+"/" {
				a, err := npy.Decode([]byte(data))
				if err != nil {
					t.Fatal(err)
				}
				rec.Fields = append(rec.Fields, format.Field{Key: strings.TrimSuffix(base, ".npy"), Value: a})
			}
		}
		return rec
	}
	data, ok := files[name]
	if !ok {
		t.Fatalf("no file %s among %q", name, names(files))
	}
	if target.Container == producer.Safetensors {
		f, err := safetensors.Decode([]byte(data))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range f.Metadata {
			f.Record.Fields = append(f.Record.Fields, format.Field{Key: k, Value: v})
		}
		return f.Record
	}
	a, err := torch.Decode([]byte(data), torch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if prefix := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)); !strings.HasPrefix(data[30:], prefix+"/data.pkl") {
		t.Errorf("%s begins with the member %.40q, want the directory %s", name, data[30:], prefix)
	}
	return a.Value.(*format.Record)
}

// flat is the values of a record, comparable.
func flat(r *format.Record, bfloat16 format.DType) map[string]string {
	out := map[string]string{}
	for _, f := range r.Fields {
		v := fmt.Sprint(f.Value)
		if t, ok := f.Value.(*format.Tensor); ok {
			d := t.DType
			if d == format.BFloat16 {
				d = bfloat16
			}
			v = fmt.Sprintf("%s %v %x", d, t.Shape, t.Data)
		}
		out[f.Key] = v
	}
	return out
}

// TestContent reads back what was written for every target, and compares it with what
// the target's reader wants of each sample.
func TestContent(t *testing.T) {
	t.Parallel()
	for _, target := range producer.Targets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(format.NormPre), 2, 3, 40, 1200)
			opt := export.Options{To: target.Name, Norm: norm, Layers: format.Layers{2, 30, 58}}
			files := tree(t, written(t, planned(t, ds, opt)))
			n, err := norm()
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			for s, err := range ds.Samples(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				name := map[string]string{
					"speculators": fmt.Sprintf("hidden_states/hs_%d.safetensors", i), "angelslim": fmt.Sprintf("rows_0-5000/data_%d.ckpt", i),
					"modelopt": s.ID + ".pt", "safetensors": s.ID + ".safetensors", "npy": s.ID,
				}[target.Name]
				if name == "" {
					name = fmt.Sprintf("rows_0-2000/data_%d.ckpt", i)
				}
				final := &s.Hidden[len(s.Hidden)-1]
				if len(target.Final) == 1 && target.Final[0] == format.NormPost {
					data := bytes.Clone(final.Rows.Data)
					if err := n.Apply(data, data, final.Rows.DType, final.Rows.N); err != nil {
						t.Fatal(err)
					}
					final.Rows.Data, final.State.Norm = data, format.NormPost
				}
				want, err := producer.Emit(target.Name, s, producer.EmitOptions{Layers: opt.Layers})
				if err != nil {
					t.Fatal(err)
				}
				dtype := format.BFloat16
				if target.Container == producer.Arrays {
					dtype = format.Uint16
				}
				if diff := cmp.Diff(flat(want, dtype), flat(decoded(t, target, files, name), dtype)); diff != "" {
					t.Errorf("sample %s (-want +got):\n%.1000s", s.ID, diff)
				}
				i++
			}
		})
	}
}

// TestTokenDataset reads the ids and masks beside the states of speculators: row i
// belongs to hs_i, in every order and split.
func TestTokenDataset(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opt export.Options
		n   int
	}{
		"batches":  {export.Options{}, 1001}, // of a thousand rows
		"shuffled": {export.Options{Shuffle: true, Seed: 3}, 40},
		"split":    {export.Options{Shuffle: true, Splits: []export.Split{{"train", 0.75}, {"val", 0.25}}}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lengths := make([]int, tt.n)
			for i := range lengths {
				lengths[i] = 1 + i%7
			}
			spec := full(format.NormPre)
			spec.Hidden = 1
			tt.opt.To = "speculators"
			plan := planned(t, dataset(t, spec, lengths...), tt.opt)
			files := tree(t, written(t, plan))
			total := 0
			for _, split := range plan.Splits {
				stream, err := hfdata.Open([]byte(files[filepath.Join(split.Name, "data-00000-of-00001.arrow")]))
				if err != nil {
					t.Fatal(err)
				}
				if stream.Len() != split.Samples {
					t.Errorf("split %q has %d rows, want %d", split.Name, stream.Len(), split.Samples)
				}
				for i := range stream.Len() {
					tokens, mask, err := stream.Row(i)
					if err != nil {
						t.Fatal(err)
					}
					f, err := safetensors.Decode([]byte(files[filepath.Join(split.Name, fmt.Sprintf("hidden_states/hs_%d.safetensors", i))]))
					if err != nil {
						t.Fatal(err)
					}
					ids := f.Record.Tensor("token_ids")
					view := format.Ints{DType: ids.DType, N: int(ids.Shape[0]), Stride: 8, Data: ids.Data}
					if view.N != len(tokens) || len(mask) != len(tokens) {
						t.Fatalf("row %d has %d tokens and %d mask values, its file has %d", i, len(tokens), len(mask), view.N)
					}
					for k, id := range tokens {
						if view.At(k) != int64(id) {
							t.Fatalf("row %d: token %d is %d, in its file %d", i, k, id, view.At(k))
						}
					}
				}
				total += stream.Len()
				checkState(t, files, split.Name, "torch")
			}
			if total != len(lengths) {
				t.Errorf("splits have %d rows, want %d", total, len(lengths))
			}
		})
	}
}

// checkState looks at what load_from_disk looks at first.
func checkState(t *testing.T, files map[string]string, split, format string) {
	t.Helper()
	var state struct {
		Files       []struct{ Filename string } `json:"_data_files"`
		Fingerprint string                      `json:"_fingerprint"`
		Format      *string                     `json:"_format_type"`
		Kwargs      *map[string]any             `json:"_format_kwargs"`
		Split       *string                     `json:"_split"`
	}
	if err := json.Unmarshal([]byte(files[filepath.Join(split, "state.json")]), &state); err != nil {
		t.Fatal(err)
	}
	for _, f := range state.Files {
		if _, ok := files[filepath.Join(split, f.Filename)]; !ok {
			t.Errorf("state.json lists %s, which is not there", f.Filename)
		}
	}
	if len(state.Files) == 0 || len(state.Fingerprint) != 16 || state.Kwargs == nil || (state.Split == nil) != (split == "") || state.Split != nil && *state.Split != split {
		t.Errorf("state.json is %s", files[filepath.Join(split, "state.json")])
	}
	if (state.Format == nil) != (format == "") || state.Format != nil && *state.Format != format {
		t.Errorf("state.json has another _format_type than %q: %s", format, files[filepath.Join(split, "state.json")])
	}
	var info struct{ Features map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(files[filepath.Join(split, "dataset_info.json")]), &info); err != nil || len(info.Features) == 0 {
		t.Errorf("dataset_info.json has no features (%v): %s", err, files[filepath.Join(split, "dataset_info.json")])
	}
}

// TestDatasets reads the Arrow files of the target "datasets".
func TestDatasets(t *testing.T) {
	t.Parallel()
	for _, dtype := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		t.Run(dtype.String(), func(t *testing.T) {
			t.Parallel()
			spec := full(format.NormPre)
			spec.DType = dtype
			var samples []*format.Sample
			for i, n := range []int{1, 2, 63, 64, 65} {
				s := hsxtest.Sample(spec, i, n)
				if i == 1 {
					s.LossMask = nil
				}
				samples = append(samples, s)
			}
			plan := planned(t, stored(t, samples), export.Options{To: "datasets"})
			files := tree(t, written(t, plan))
			checkState(t, files, "", "")
			r, err := ipc.NewReader(strings.NewReader(files["data-00000-of-00001.arrow"]))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Release()
			const schema = `id:utf8 input_ids:list<item: int64, nullable> loss_mask:list<item: int64, nullable> seq_len:int64`
			var got []string
			for _, f := range r.Schema().Fields()[:4] {
				got = append(got, f.Name+":"+f.Type.String())
			}
			if s := strings.Join(got, " "); s != schema {
				t.Errorf("schema is %s, want %s", s, schema)
			}
			for i := 0; r.Next(); i++ {
				rec, want := r.Record(), samples[i]
				if id := rec.Column(0).ValueStr(0); id != want.ID {
					t.Fatalf("row %d is %q, want %q", i, id, want.ID)
				}
				if ids := rec.Column(1).ValueStr(0); ids != strings.ReplaceAll(fmt.Sprint(want.Tokens), " ", ",") {
					t.Errorf("%s: input_ids are %s, want %v", want.ID, ids, want.Tokens)
				}
				if rec.Column(2).IsNull(0) != (want.LossMask == nil) {
					t.Errorf("%s: loss_mask is %s, want %v", want.ID, rec.Column(2).ValueStr(0), want.LossMask)
				}
				for k, h := range want.Hidden {
					f := rec.Schema().Field(4 + k)
					values := rec.Column(4 + k).Data().Children()[0].Children()[0].Buffers()[1].Bytes()
					data, _ := h.Rows.Contiguous()
					if f.Name != h.State.Column() || !bytes.Equal(values[:len(data)], data) {
						t.Errorf("%s: column %s does not hold the bytes of %s", want.ID, f.Name, h.State)
					}
				}
			}
			if r.Err() != nil {
				t.Error(r.Err())
			}
		})
	}
}
