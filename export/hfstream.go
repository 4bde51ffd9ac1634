package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/shard"
)

// arrowSchema is the schema of the Arrow files of a target. All fields are nullable, as
// Hugging Face datasets has them: it would cast, and so copy, a table that differs.
func (p *Plan) arrowSchema() *arrow.Schema {
	field := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	ints := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	fields := []arrow.Field{field("input_ids", ints), field("loss_mask", ints), field("seq_len", arrow.PrimitiveTypes.Int64)}
	if p.target.Name != datasets {
		return arrow.NewSchema(fields, nil)
	}
	fields = slices.Insert(fields, 0, field("id", arrow.BinaryTypes.String))
	for _, s := range p.states {
		f := shard.StateField(s, p.ds.Manifest().HiddenSize) // datasets does not look at its metadata
		f.Nullable = true
		fields = append(fields, f)
	}
	return arrow.NewSchema(fields, nil)
}

// smallColumns collects what of rows is no state.
type smallColumns struct {
	id        *array.StringBuilder // nil: not wanted
	ids, mask *array.ListBuilder
	length    *array.Int64Builder
	wide      []int64 // scratch
}

func newSmallColumns(withID bool) *smallColumns {
	mem := memory.DefaultAllocator
	c := &smallColumns{
		ids: array.NewListBuilder(mem, arrow.PrimitiveTypes.Int64), mask: array.NewListBuilder(mem, arrow.PrimitiveTypes.Int64),
		length: array.NewInt64Builder(mem),
	}
	if withID {
		c.id = array.NewStringBuilder(mem)
	}
	return c
}

func (c *smallColumns) add(id string, tokens []int32, mask []byte) {
	if c.id != nil {
		c.id.Append(id)
	}
	c.wide = appendInts(c.wide, c.ids, tokens)
	if mask == nil {
		c.mask.AppendNull()
	} else {
		c.wide = appendInts(c.wide, c.mask, mask)
	}
	c.length.Append(int64(len(tokens)))
}

func appendInts[V int32 | byte](wide []int64, to *array.ListBuilder, values []V) []int64 {
	wide = wide[:0]
	for _, v := range values {
		wide = append(wide, int64(v))
	}
	to.Append(true)
	to.ValueBuilder().(*array.Int64Builder).AppendValues(wide, nil)
	return wide
}

// take is the columns of the rows that were added since the last call.
func (c *smallColumns) take() []arrow.Array {
	out := []arrow.Array{c.ids.NewArray(), c.mask.NewArray(), c.length.NewArray()}
	if c.id != nil {
		out = slices.Insert(out, 0, c.id.NewArray())
	}
	return out
}

// tokenRows writes the ids and masks of a unit as an Arrow stream.
func (w *worker) tokenRows(ctx context.Context, o *output) error {
	const batch = 1000 // rows, as datasets writes them
	return w.arrowFile(o, func(write func(arrow.Record) error, sc *arrow.Schema) error {
		cols := newSmallColumns(false)
		for rows := range slices.Chunk(o.unit.rows, batch) {
			for _, r := range rows {
				if err := ctx.Err(); err != nil {
					return err
				}
				sh, err := w.src.at(r)
				if err != nil {
					return err
				}
				h, err := sh.Head(r.row)
				if err != nil {
					return err
				}
				cols.add(h.ID, h.Tokens, h.LossMask)
			}
			if err := write(array.NewRecord(sc, cols.take(), int64(len(rows)))); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateRows writes the samples of a unit as an Arrow stream, each a record batch of its
// own: so its states go from the map to the file without a copy.
func (w *worker) stateRows(ctx context.Context, o *output) error {
	return w.arrowFile(o, func(write func(arrow.Record) error, sc *arrow.Schema) error {
		small := newSmallColumns(true)
		for _, r := range o.unit.rows {
			if err := ctx.Err(); err != nil {
				return err
			}
			s, err := w.load(r)
			if err != nil {
				return err
			}
			small.add(s.ID, s.Tokens, s.LossMask)
			cols := small.take()
			ends := arrow.Int32Traits.CastToBytes([]int32{0, int32(len(s.Tokens))})
			for _, h := range s.Hidden {
				i := sc.FieldIndices(h.State.Column())
				if i == nil {
					continue // not exported
				}
				data, _ := h.Rows.Contiguous() // those of a dataset are
				cols = append(cols, stateArray(sc.Field(i[0]).Type.(*arrow.ListType), ends, h.Rows, data))
			}
			if err := write(array.NewRecord(sc, cols, 1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// stateArray is a column of one row around the memory of its state.
func stateArray(t *arrow.ListType, ends []byte, r format.Rows, data []byte) arrow.Array {
	row := t.Elem().(*arrow.FixedSizeListType)
	elems := array.NewData(row.Elem(), r.N*r.Width, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
	rows := array.NewData(row, r.N, []*memory.Buffer{nil}, []arrow.ArrayData{elems}, 0, 0)
	return array.MakeFromData(array.NewData(t, 1, []*memory.Buffer{nil, memory.NewBufferBytes(ends)}, []arrow.ArrayData{rows}, 0, 0))
}

// arrowFile writes the one file of a unit as an Arrow stream.
func (w *worker) arrowFile(o *output, fill func(write func(arrow.Record) error, sc *arrow.Schema) error) error {
	return w.file(o, o.unit.name, func(f io.Writer) error {
		sc, b := w.plan.arrowSchema(), bufio.NewWriter(f) // Arrow pads in writes of a few bytes
		out := ipc.NewWriter(b, ipc.WithSchema(sc))
		err := fill(func(rec arrow.Record) error {
			defer rec.Release()
			return out.Write(rec)
		}, sc)
		if err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
		return b.Flush()
	})
}

// hfInfo and hfState are what save_to_disk writes beside the Arrow files.
type hfInfo struct {
	Citation    string          `json:"citation"`
	Description string          `json:"description"`
	Features    json.RawMessage `json:"features"`
	Homepage    string          `json:"homepage"`
	License     string          `json:"license"`
}

type hfState struct {
	Files       []hfFile       `json:"_data_files"`
	Fingerprint string         `json:"_fingerprint"`
	Columns     []string       `json:"_format_columns"`
	Kwargs      map[string]any `json:"_format_kwargs"`
	Format      *string        `json:"_format_type"`
	All         bool           `json:"_output_all_columns"`
	Split       *string        `json:"_split"`
}

type hfFile struct {
	Name string `json:"filename"`
}

// hfFiles are the files that make a directory of Arrow files a dataset to load_from_disk.
func (p *Plan) hfFiles(split string) (map[string][]byte, error) {
	info := hfInfo{Features: hfFeatures(p.arrowSchema())}
	state := hfState{Files: []hfFile{}, Kwargs: map[string]any{}}
	if p.target.Name == datasets {
		info.Description = "Hidden states, written by hsx: " + format.Layout{States: p.states}.String() +
			". One list of rows for each sample; bfloat16 as the uint16 of its bits, to be viewed as torch.bfloat16."
	} else {
		torch := "torch" // the trainer takes rows for tensors
		state.Format = &torch
	}
	if split != "" {
		state.Split = &split
	}
	for _, u := range p.units {
		if dir, name := splitName(u.name); u.stream != oneSample && dir == split {
			state.Files = append(state.Files, hfFile{name})
		}
	}
	seal, err := json.Marshal(p.settings())
	if err != nil {
		return nil, err
	}
	state.Fingerprint = fmt.Sprintf("%016x", xxh3.Hash(append(seal, split...)))
	files := map[string][]byte{}
	for name, v := range map[string]any{"dataset_info.json": info, "state.json": state} {
		if files[name], err = json.MarshalIndent(v, "", "  "); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// hfFeatures is a schema as datasets writes it. Versions before and after 4.0 read
// "Sequence"; the newer "List" is not known to the former.
func hfFeatures(sc *arrow.Schema) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range sc.Fields() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", f.Name, hfFeature(f.Type))
	}
	b.WriteByte('}')
	return b.Bytes()
}

func hfFeature(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.ListType:
		return fmt.Sprintf(`{"feature":%s,"_type":"Sequence"}`, hfFeature(t.Elem()))
	case *arrow.FixedSizeListType:
		return fmt.Sprintf(`{"feature":%s,"length":%d,"_type":"Sequence"}`, hfFeature(t.Elem()), t.Len())
	case *arrow.StringType:
		return `{"dtype":"string","_type":"Value"}`
	case *arrow.Float16Type:
		return `{"dtype":"float16","_type":"Value"}`
	}
	return fmt.Sprintf(`{"dtype":%q,"_type":"Value"}`, t.Name())
}
