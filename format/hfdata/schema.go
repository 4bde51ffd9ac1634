package hfdata

import (
	"fmt"
	"strconv"
	"strings"

	"hsx/format"
	"hsx/internal/arrowmsg"
)

const (
	idsColumn  = "input_ids"
	maskColumn = "loss_mask"

	maxDepth = 64  // of nested types, as in Arrow's own readers
	maxNames = 16  // of columns in a message
	maxName  = 100 // bytes of a column's name in a message
)

// The types and fields of Arrow's metadata that matter here, as numbered in its
// Schema.fbs.
const (
	typeNull      = 1
	typeInt       = 2
	typeBool      = 6
	typeList      = 12
	typeFixedList = 16
	typeLargeList = 21

	fieldName       = 0
	fieldType       = 2
	fieldTypeTable  = 3
	fieldDictionary = 4
	fieldChildren   = 5
)

// column says where one list column's nodes and buffers begin in each record batch,
// and how its elements are encoded. The zero value is a column that is not there.
type column struct {
	list   int // typeList, typeLargeList, typeFixedList
	size   int // elements of each row, with typeFixedList
	bits   int // of one element: 1 (bool), 8, 16, 32 or 64
	signed bool

	start tally
}

// tally counts what the columns before some place put into a record batch.
type tally struct {
	nodes, buffers, views int
}

type schema struct {
	ids, mask column
	all       tally
}

// readSchema finds the token columns.
func readSchema(m arrowmsg.Message) (*schema, error) {
	t, at := m.Header, m.Meta.At
	if t.Int16(0) != 0 {
		return nil, refuse(format.ErrUnsupported, at, "", "stream is big-endian, want little-endian")
	}
	s := &schema{}
	// A field takes more than 8 bytes, so a schema of more fields shares its parts,
	// and parts shared at each level multiply the work without end.
	c := counter{at: at, left: len(m.Meta.Bytes) / 8}
	var names []string
	more := 0
	for field := range t.Tables(1) {
		name, start := field.Text(fieldName), c.tally
		if err := c.add(field, name, 0); err != nil {
			return nil, err
		}
		if len(names) < maxNames {
			names = append(names, strconv.Quote(clip(name)))
		} else {
			more++
		}
		into := &s.ids
		switch string(name) {
		case idsColumn:
		case maskColumn:
			into = &s.mask
		default:
			continue
		}
		if into.list != 0 {
			return nil, refuse(format.ErrUnsupported, at, string(name), "column %s is there twice", name)
		}
		if into == &s.mask && field.Uint8(fieldType) == typeNull {
			continue // a column of nothing but null says what no column says
		}
		col, msg := listOf(field)
		switch {
		case t.Damaged():
		case msg != "":
			return nil, refuse(format.ErrUnsupported, at, string(name), "column %s %s, want a list of integers", name, msg)
		case into == &s.ids && col.bits == 1:
			return nil, refuse(format.ErrUnsupported, at, idsColumn, "column input_ids is a list of bool, want a list of integers")
		}
		col.start = start
		*into = col
	}
	s.all = c.tally
	if t.Damaged() {
		return nil, refuse(format.ErrCorrupt, at, "", "schema points outside of its message")
	}
	if s.ids.list == 0 {
		found := "none"
		if len(names) > 0 {
			found = strings.Join(names, ", ")
		}
		if more > 0 {
			found += fmt.Sprintf(" and %d more", more)
		}
		return nil, refuse(format.ErrUnsupported, at, idsColumn, "stream has no column input_ids, its columns are %s", found)
	}
	return s, nil
}

// listOf reads the type of a list column. The message, if any, says what it is
// instead.
func listOf(field arrowmsg.Table) (column, string) {
	var c column
	if field.Has(fieldDictionary) {
		return c, "is dictionary-encoded"
	}
	switch c.list = field.Uint8(fieldType); c.list {
	case typeList, typeLargeList:
	case typeFixedList:
		// Rows of no elements take no bytes, so nothing would bound their number.
		if c.size = field.Table(fieldTypeTable).Int32(0); c.size <= 0 {
			return c, fmt.Sprintf("is a fixed_size_list of %d elements", c.size)
		}
	default:
		return c, "is not a list (" + typeName(c.list) + ")"
	}
	children := 0
	for elem := range field.Tables(fieldChildren) {
		children++
		switch typ := elem.Uint8(fieldType); {
		case elem.Has(fieldDictionary):
			return c, "is a list of dictionary-encoded values"
		case typ == typeBool:
			c.bits = 1
		case typ == typeInt:
			t := elem.Table(fieldTypeTable)
			c.bits, c.signed = t.Int32(0), t.Uint8(1) != 0
		default:
			return c, "is a list of " + typeName(typ)
		}
	}
	switch {
	case children != 1:
		return c, fmt.Sprintf("is a list of %d element types", children)
	case c.bits == 64 && !c.signed:
		return c, "is a list of uint64"
	case c.bits != 1 && c.bits != 8 && c.bits != 16 && c.bits != 32 && c.bits != 64:
		return c, fmt.Sprintf("is a list of %d-bit integers", c.bits)
	}
	return c, ""
}

// counter adds up the nodes and buffers that fields put into a record batch.
type counter struct {
	tally
	at   int // where the schema lies in the file
	left int // fields that may still come
}

// add counts a field with its children: Arrow lays them out depth first.
func (c *counter) add(field arrowmsg.Table, column []byte, depth int) error {
	if c.left--; c.left < 0 || depth > maxDepth {
		return refuse(format.ErrLimit, c.at, clip(column), "column %q nests deeper than %d levels, or its schema shares fields", clip(column), maxDepth)
	}
	if field.Damaged() {
		return refuse(format.ErrCorrupt, c.at, "", "schema points outside of its message")
	}
	c.nodes++
	if field.Has(fieldDictionary) {
		c.buffers += 2 // the indices; the values travel apart
		return nil
	}
	typ := field.Uint8(fieldType)
	buffers, view, ok := buffersOf(typ, field.Table(fieldTypeTable))
	if !ok {
		return refuse(format.ErrUnsupported, c.at, clip(column), "column %q has the type %d, want one of 1 to 26", clip(column), typ)
	}
	c.buffers += buffers
	if view {
		c.views++
	}
	for child := range field.Tables(fieldChildren) {
		if err := c.add(child, column, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// buffersOf is the number of buffers of a type's own, without its children's. A view
// type has others besides, which each record batch counts.
func buffersOf(typ int, t arrowmsg.Table) (n int, view, ok bool) {
	switch typ {
	case typeNull, 22: // run-end encoded
		return 0, false, true
	case 13, typeFixedList: // struct
		return 1, false, true
	case 14: // union: type ids, and offsets when it is dense
		if t.Int16(0) == 1 {
			return 2, false, true
		}
		return 1, false, true
	case 4, 5, 19, 20: // binary, utf8 and their large forms
		return 3, false, true
	case 23, 24: // binary and utf8 view
		return 2, true, true
	case 25, 26: // list view
		return 3, false, true
	}
	return 2, false, typ >= typeInt && typ <= typeLargeList
}

func typeName(typ int) string {
	switch typ {
	case typeNull:
		return "null"
	case typeInt:
		return "int"
	case 3:
		return "float"
	case 5, 20, 24:
		return "string"
	case typeBool:
		return "bool"
	case typeList, typeLargeList, typeFixedList:
		return "list"
	case 13:
		return "struct"
	case 25, 26:
		return "list view"
	}
	return fmt.Sprintf("type %d", typ)
}

// clip keeps a message short whatever the file holds.
func clip(s []byte) string {
	if len(s) > maxName {
		return string(s[:maxName]) + "…"
	}
	return string(s)
}
