package flight

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"hsx/format"
	"hsx/internal/arrowmsg"
)

// The columns that are not states.
const (
	colID     = "id"
	colSource = "source"
	colIDs    = "input_ids"
	colMask   = "loss_mask"
	colDigest = "digest"

	digestBytes = 16
)

// The parts of Arrow's metadata that matter here, as numbered in its Schema.fbs.
const (
	schemaEndianness = 0
	schemaFields     = 1
	schemaMetadata   = 2

	fieldName       = 0
	fieldType       = 2
	fieldTypeTable  = 3
	fieldDictionary = 4
	fieldChildren   = 5
	fieldKeyValues  = 6

	typeInt         = 2
	typeFloat       = 3
	typeUTF8        = 5
	typeList        = 12
	typeFixedBinary = 15
	typeFixedList   = 16

	half, single = 0, 1 // precisions of a float
)

const (
	maxColumns = 1000
	maxFacts   = 64      // key and value pairs of a schema's metadata, or of a field's
	maxFact    = 4 << 10 // bytes of a value
)

// kind is what a column is made of.
type kind int

const (
	text     kind = iota // utf8
	numbers              // list<T>
	states               // list<fixed_size_list<T>[H]>
	binary16             // fixed_size_binary[16]
)

// column is one column of a schema.
type column struct {
	name  string
	kind  kind
	dtype format.DType // of numbers and states
	width int          // H, of states
}

// schema is what a stream's record batches hold.
type schema struct {
	columns  []column // in the order of the batches
	metadata map[string]string
}

// readSchema reads a schema within the bounds of its bytes.
func readSchema(m arrowmsg.Message) (*schema, error) {
	t := m.Header
	if t.Int16(schemaEndianness) != 0 {
		return nil, fmt.Errorf("schema is big-endian, want little-endian")
	}
	s := &schema{metadata: facts(t, schemaMetadata)}
	seen := map[string]bool{}
	for f := range t.Tables(schemaFields) {
		if len(s.columns) == maxColumns {
			return nil, fmt.Errorf("schema has more than %d columns", maxColumns)
		}
		c, err := readColumn(f, s.metadata)
		switch {
		case t.Damaged():
			return nil, fmt.Errorf("schema points outside of its message")
		case err != nil:
			return nil, err
		case seen[c.name]:
			return nil, fmt.Errorf("column %s is there twice", c.name)
		}
		seen[c.name] = true
		s.columns = append(s.columns, c)
	}
	if t.Damaged() {
		return nil, fmt.Errorf("schema points outside of its message")
	}
	for _, name := range []string{colID, colIDs} {
		if !seen[name] {
			return nil, fmt.Errorf("schema has no column %s", name)
		}
	}
	return s, nil
}

// readColumn reads one field. The norm state of the final goes to the metadata.
func readColumn(f arrowmsg.Table, metadata map[string]string) (column, error) {
	name := f.Text(fieldName)
	c := column{name: clip(string(name[:min(len(name), maxFact)]))}
	t, err := readType(f, 0)
	if err != nil {
		return c, fmt.Errorf("column %s: %w", c.name, err)
	}
	want := ""
	switch c.name {
	case colID, colSource:
		c.kind, want = text, "utf8"
	case colIDs:
		c.kind, c.dtype, want = numbers, format.Int32, "list<int32>"
	case colMask:
		c.kind, c.dtype, want = numbers, format.Uint8, "list<uint8>"
	case colDigest:
		c.kind, want = binary16, "fixed_size_binary[16]"
	default:
		if !stateName(c.name) {
			return c, fmt.Errorf("column %s is not known, want id, source, input_ids, loss_mask, layer_<k>, final or digest", c.name)
		}
		own := facts(f, fieldKeyValues)
		if c.name == "final" && own["hsx.norm"] != "" {
			metadata["hsx.norm"] = own["hsx.norm"]
		}
		c.kind, c.width = states, t.width
		c.dtype, want = stateType(t.elem, own["hsx.dtype"])
		want = fmt.Sprintf("list<fixed_size_list<%s>[%d]>", want, t.width)
	}
	if t.String() != want {
		if c.kind == states {
			want = "list<fixed_size_list<T>[H]> with T uint16 (and hsx.dtype=bfloat16 in the field's metadata), halffloat or float"
		}
		return c, fmt.Errorf("column %s is %s, want %s", c.name, t, want)
	}
	return c, nil
}

// stateName reports whether a column holds states of a layer that is named.
func stateName(name string) bool {
	if name == "final" {
		return true
	}
	number, ok := strings.CutPrefix(name, "layer_")
	k, err := strconv.Atoi(number)
	return ok && err == nil && k >= int(format.Embedding) && strconv.Itoa(k) == number
}

// stateType is the dtype of states whose numbers are of an Arrow type, and that type
// again if it is one of a state's.
func stateType(elem, said string) (format.DType, string) {
	switch {
	case elem == "uint16" && said == format.BFloat16.String():
		return format.BFloat16, elem
	case elem == "halffloat":
		return format.Float16, elem
	case elem == "float":
		return format.Float32, elem
	}
	return 0, "?"
}

// arrowType is a type as far as a column here can have it.
type arrowType struct {
	lists int    // list<…> around it: 0, or 1
	width int    // of the fixed_size_list in that, 0 when there is none
	elem  string // what is left
}

// String is the type as Arrow's libraries print it.
func (t arrowType) String() string {
	s := t.elem
	if t.width > 0 {
		s = fmt.Sprintf("fixed_size_list<%s>[%d]", s, t.width)
	}
	if t.lists > 0 {
		s = "list<" + s + ">"
	}
	return s
}

// readType reads the type of a field, two levels deep at most.
func readType(f arrowmsg.Table, depth int) (arrowType, error) {
	if f.Has(fieldDictionary) {
		return arrowType{}, fmt.Errorf("it is dictionary-encoded, want plain values")
	}
	t := f.Table(fieldTypeTable)
	switch typ := f.Uint8(fieldType); {
	case typ == typeUTF8:
		return arrowType{elem: "utf8"}, nil
	case typ == typeInt:
		name := "int"
		if t.Uint8(1) == 0 {
			name = "uint"
		}
		return arrowType{elem: name + strconv.Itoa(t.Int32(0))}, nil
	case typ == typeFloat && t.Int16(0) == half:
		return arrowType{elem: "halffloat"}, nil
	case typ == typeFloat && t.Int16(0) == single:
		return arrowType{elem: "float"}, nil
	case typ == typeFloat:
		return arrowType{elem: "double"}, nil
	case typ == typeFixedBinary:
		return arrowType{elem: fmt.Sprintf("fixed_size_binary[%d]", t.Int32(0))}, nil
	case typ == typeList && depth == 0, typ == typeFixedList && depth == 1:
		return readList(f, t, typ, depth)
	case typ == typeList, typ == typeFixedList:
		return arrowType{}, fmt.Errorf("its lists nest otherwise than those of a dataset")
	default:
		return arrowType{elem: fmt.Sprintf("of Arrow type %d", typ)}, nil
	}
}

func readList(f, t arrowmsg.Table, typ, depth int) (out arrowType, err error) {
	n := 0
	for child := range f.Tables(fieldChildren) {
		if n++; n > 1 {
			break
		}
		if out, err = readType(child, depth+1); err != nil {
			return out, err
		}
	}
	if n != 1 {
		return out, fmt.Errorf("its list has %d element types, want one", n)
	}
	if typ == typeList {
		out.lists = 1
		return out, nil
	}
	out.width = t.Int32(0)
	if out.width <= 0 || out.width > math.MaxInt32/4 {
		return out, fmt.Errorf("its states have %d values, want 1 to %d", out.width, math.MaxInt32/4)
	}
	return out, nil
}

// facts are the pairs of a table's metadata whose keys are of hsx.
func facts(t arrowmsg.Table, field int) map[string]string {
	out, n := map[string]string{}, 0
	for kv := range t.Tables(field) {
		if n++; n > maxFacts {
			break
		}
		key, value := kv.Text(0), kv.Text(1)
		if len(key) <= maxFact && len(value) <= maxFact && strings.HasPrefix(string(key), "hsx.") {
			out[string(key)] = string(value)
		}
	}
	return out
}
