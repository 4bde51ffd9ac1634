package torch

import (
	"fmt"
	"strconv"
	"strings"

	"hsx/format"
)

// built is the finished form of an object of the machine. The memo lets a pickle of
// some hundred bytes name 2^63 values, so each object is built once, and what it
// stands for when it is walked is counted, not made.
type built struct {
	state buildState
	value format.Value
	cost  cost
}

type buildState uint8

const (
	unbuilt buildState = iota
	building
	done
)

// cost is what somebody who walks a value has to expect.
type cost struct {
	bytes                  int64 // of tensor elements
	nodes, tensors, height int32
}

// builder turns what the machine left into values.
type builder struct {
	dir      *directory
	big      bool  // storages are big-endian
	maxBytes int64 // of all tensors, and of all that are copied
	copied   int64
	records  map[string]record // by storage key
	trail    []step            // the way from the top to the value in work
}

// step is one key or, when key is nil, one index.
type step struct {
	key   *string
	index int
}

// value builds v, whose path is the trail.
func (b *builder) value(v any) (format.Value, cost, error) {
	var obj *built
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v, cost{nodes: 1}, nil
	case *global:
		if v.role == dtypeValue {
			return v.name, cost{nodes: 1}, nil
		}
		return nil, cost{}, b.fail(format.ErrUnsupported, -1, "%s is the class %s, want data", b.what("value"), v.name)
	case *storage:
		return b.value(v.view())
	case *sequence:
		obj = &v.built
	case *dict:
		obj = &v.built
	case *view:
		obj = &v.built
	case bigInt:
		return nil, cost{}, b.fail(format.ErrUnsupported, -1, "%s is an integer of %d bytes, want at most 8", b.what("value"), len(v))
	}
	switch {
	case obj.state == done:
		return obj.value, obj.cost, nil
	case obj.state == building:
		return nil, cost{}, b.fail(format.ErrCorrupt, -1, "%s contains itself", b.what(kindOf(v)[len("a "):]))
	case len(b.trail) >= maxNesting:
		return nil, cost{}, fail(format.ErrLimit, -1, "", "values are nested more than %d deep", maxNesting)
	}
	obj.state = building
	obj.cost = cost{nodes: 1}
	var err error
	switch v := v.(type) {
	case *sequence:
		obj.value, err = b.sequence(v)
	case *dict:
		obj.value, err = b.dict(v)
	case *view:
		obj.value, err = b.tensor(v)
	}
	obj.state = done
	return obj.value, obj.cost, err
}

func (b *builder) sequence(s *sequence) (format.Value, error) {
	out := make([]format.Value, len(s.items))
	for i, x := range s.items {
		var err error
		if out[i], err = b.child(&s.cost, step{index: i}, x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (b *builder) dict(d *dict) (format.Value, error) {
	r := &format.Record{Fields: make([]format.Field, len(d.items))}
	seen := make(map[string]bool, len(d.items))
	for i, it := range d.items {
		key, ok := it.key.(string)
		if !ok {
			return nil, b.fail(format.ErrUnsupported, -1, "%s has a key that is %s, want strings only", b.what("dict"), kindOf(it.key))
		}
		if seen[key] {
			return nil, b.fail(format.ErrCorrupt, -1, "%s has the key %q twice", b.what("dict"), clip(key))
		}
		seen[key] = true
		v, err := b.child(&d.cost, step{key: &key}, it.value)
		if err != nil {
			return nil, err
		}
		r.Fields[i] = format.Field{Key: key, Value: v}
	}
	return r, nil
}

// child builds one value of a container and adds its cost to the container's, which
// is within the limits after each step, so that no sum overflows.
func (b *builder) child(sum *cost, s step, x any) (format.Value, error) {
	b.trail = append(b.trail, s)
	v, c, err := b.value(x)
	if err != nil {
		return nil, err
	}
	sum.nodes += c.nodes
	sum.tensors += c.tensors
	sum.bytes += c.bytes
	sum.height = max(sum.height, c.height+1)
	switch {
	case sum.nodes > maxValues:
		err = b.fail(format.ErrLimit, -1, "record expands to more than %d values", maxValues)
	case sum.tensors > maxTensors:
		err = b.fail(format.ErrLimit, -1, "record has more than %d tensors", maxTensors)
	case sum.height > maxNesting:
		err = fail(format.ErrLimit, -1, "", "values are nested more than %d deep", maxNesting)
	case sum.bytes > b.maxBytes:
		err = b.fail(format.ErrLimit, -1, "tensors have more than %d bytes together, %d times the archive", b.maxBytes, maxShare)
	}
	b.trail = b.trail[:len(b.trail)-1]
	return v, err
}

// path renders the trail: "a.b[2]".
func (b *builder) path() string {
	var s strings.Builder
	for i, st := range b.trail {
		switch {
		case s.Len() > 512:
			s.WriteString("…")
			return s.String()
		case st.key == nil:
			s.WriteString("[" + strconv.Itoa(st.index) + "]")
		case i > 0:
			s.WriteString("." + clip(*st.key))
		default:
			s.WriteString(clip(*st.key))
		}
	}
	return s.String()
}

// what names the value in work.
func (b *builder) what(kind string) string {
	if p := b.path(); p != "" {
		return fmt.Sprintf("%s %q", kind, p)
	}
	return "the top " + kind
}

// fail blames the value in work, at off or, when that is unknown, at no place.
func (b *builder) fail(kind error, off int64, msg string, args ...any) error {
	return fail(kind, off, b.path(), msg, args...)
}
