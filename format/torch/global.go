package torch

import (
	"strconv"
	"strings"

	"hsx/format"
)

// role says what the machine does with a global.
type role uint8

const (
	rebuildV2 role = iota + 1
	rebuildV3
	rebuildParameter
	orderedDict
	sizeClass
	deviceClass
	dtypeValue
	storageClass // typed, or untyped when the global has no dtype
	typedStorage // the base class, which names no dtype
)

// global is an accepted name. It is a label: there is nothing behind it to call.
type global struct {
	name  string
	role  role
	dtype format.DType
}

// lookup is the whole list of accepted names.
func lookup(module, name string) (global, bool) {
	g := global{name: module + "." + name}
	switch g.name {
	case "torch._utils._rebuild_tensor_v2":
		g.role = rebuildV2
	case "torch._utils._rebuild_tensor_v3":
		g.role = rebuildV3
	case "torch._utils._rebuild_parameter":
		g.role = rebuildParameter
	case "collections.OrderedDict":
		g.role = orderedDict
	case "torch.Size":
		g.role = sizeClass
	case "torch.device":
		g.role = deviceClass
	case "torch.UntypedStorage", "torch.storage.UntypedStorage":
		g.role = storageClass
	case "torch.TypedStorage", "torch.storage.TypedStorage":
		g.role = typedStorage
	default:
		if module != "torch" {
			return g, false
		}
		if g.dtype = storageType(name); g.dtype != format.InvalidDType {
			g.role = storageClass
			return g, true
		}
		d, err := format.ParseDType(name)
		if err != nil || d.String() != name || d == format.InvalidDType {
			return g, false
		}
		g.role, g.dtype = dtypeValue, d
	}
	return g, true
}

// storageType is the element type of a typed storage class.
func storageType(class string) format.DType {
	for d := format.Bool; d <= format.Float64; d++ {
		if class != "" && class == storageName(d) {
			return d
		}
	}
	return format.InvalidDType
}

// storageName is the storage class of an element type, "" where torch has none.
func storageName(d format.DType) string {
	switch d {
	case format.Float64:
		return "DoubleStorage"
	case format.Float32:
		return "FloatStorage"
	case format.Float16:
		return "HalfStorage"
	case format.BFloat16:
		return "BFloat16Storage"
	case format.Int64:
		return "LongStorage"
	case format.Int32:
		return "IntStorage"
	case format.Int16:
		return "ShortStorage"
	case format.Int8:
		return "CharStorage"
	case format.Uint8:
		return "ByteStorage"
	case format.Bool:
		return "BoolStorage"
	}
	return ""
}

func (m *machine) global(module, name string) {
	if m.err != nil {
		return
	}
	g, ok := lookup(module, name)
	if ok {
		m.push(&g)
		return
	}
	why := "only torch's rebuild functions, storage classes and dtypes are accepted"
	switch {
	case module == "torch":
		why = "not an element type or a class that hsx reads"
	case module == "numpy" || strings.HasPrefix(module, "numpy."):
		why = "the record holds NumPy objects: convert them to tensors or plain numbers before saving"
	}
	m.unsupported("refused global %q: %s", g.name, why)
}

// persistent turns a persistent id into the storage it names.
func (m *machine) persistent(id any) {
	if m.err != nil {
		return
	}
	args := items(id)
	if len(args) != 5 || args[0] != "storage" {
		m.malformed("persistent id is %s of %d values, want ('storage', class, key, location, size)", kindOf(id), len(args))
		return
	}
	class, ok1 := args[1].(*global)
	key, ok2 := args[2].(string)
	_, ok3 := args[3].(string)
	elems, ok4 := args[4].(int64)
	switch {
	case !ok1 || !ok2 || !ok3 || !ok4:
		m.malformed("persistent id holds %s, %s, %s and %s, want a class, a string, a string and an integer",
			kindOf(args[1]), kindOf(args[2]), kindOf(args[3]), kindOf(args[4]))
	case class.role != storageClass:
		m.malformed("persistent id of class %s, want a storage class with an element type", class.name)
	case elems < 0:
		m.malformed("storage %q has %d elements, want 0 or more", clip(key), elems)
	default:
		m.push(&storage{class: *class, key: key, elems: elems, at: m.base + int64(m.at)})
	}
}

// reduce is pickle's call. fn can only be a label of the list, and each label has
// its own code here.
func (m *machine) reduce(fn, arg any) {
	if m.err != nil {
		return
	}
	g, ok := fn.(*global)
	if !ok {
		m.malformed("REDUCE of %s, want a global", kindOf(fn))
		return
	}
	if s, ok := arg.(*sequence); !ok || !s.tuple {
		m.malformed("REDUCE of %s with %s, want a tuple", g.name, kindOf(arg))
		return
	}
	args := items(arg)
	ok = false
	switch g.role {
	case rebuildV2, rebuildV3:
		ok = m.rebuild(g, args)
	case rebuildParameter:
		if len(args) == 3 {
			if v, is := args[0].(*view); is && isBool(args[1]) && isEmptyDict(args[2]) {
				m.push(v)
				ok = true
			}
		}
	case orderedDict:
		if ok = len(args) == 0; ok {
			m.push(&dict{ordered: true})
		}
	case sizeClass:
		if len(args) == 1 {
			if _, ok = integers(args[0]); ok {
				m.push(args[0])
			}
		}
	case deviceClass:
		ok = m.device(args)
	default:
		m.unsupported("refused opcode REDUCE (0x52) of %s, which is not a function", g.name)
		return
	}
	if !ok {
		m.malformed("%s has %d arguments of types that it does not take", g.name, len(args))
	}
}

// rebuild takes (storage, offset, size, stride, requires_grad, hooks[, metadata]),
// in version 3 with the dtype before the metadata.
func (m *machine) rebuild(g *global, args []any) bool {
	n := 6
	if g.role == rebuildV3 {
		n = 7
	}
	if len(args) != n && len(args) != n+1 {
		return false
	}
	if dims := max(len(items(args[2])), len(items(args[3]))); dims > maxDims {
		m.limit("tensor has %d dimensions, want at most %d", dims, maxDims)
		return true
	}
	v := &view{at: m.base + int64(m.at)}
	var ok [4]bool
	v.storage, ok[0] = args[0].(*storage)
	v.offset, ok[1] = args[1].(int64)
	v.size, ok[2] = integers(args[2])
	v.stride, ok[3] = integers(args[3])
	if ok != [4]bool{true, true, true, true} || !isBool(args[4]) {
		return false
	}
	v.dtype = v.storage.class.dtype
	if g.role == rebuildV3 {
		d, is := args[6].(*global)
		if !is || d.role != dtypeValue || v.dtype != format.InvalidDType && v.dtype != d.dtype {
			return false
		}
		v.dtype = d.dtype
	}
	if v.dtype == format.InvalidDType {
		v.dtype = format.Uint8
	}
	// Metadata such as {"neg": True} changes the values, hooks are programs.
	if !isEmptyDict(args[5]) || len(args) > n && args[n] != nil && !isEmptyDict(args[n]) {
		m.unsupported("tensor of storage %q has hooks or metadata, which hsx does not read: save a clone of it", clip(v.storage.key))
		return true
	}
	m.push(v)
	return true
}

// device pushes a device as the string that torch shows for it. Device types are
// short words; a long string is refused before it is copied.
func (m *machine) device(args []any) bool {
	if len(args) != 1 && len(args) != 2 {
		return false
	}
	name, ok := args[0].(string)
	if ok = ok && len(name) <= 64; ok && len(args) == 2 {
		var i int64
		i, ok = args[1].(int64)
		name += ":" + strconv.FormatInt(i, 10)
	}
	if ok {
		m.push(name)
	}
	return ok
}

// items are the values of a list or a tuple, nil for anything else.
func items(v any) []any {
	if s, ok := v.(*sequence); ok {
		return s.items
	}
	return nil
}

// integers are the values of a tuple or a list of integers, as many as a tensor may
// have dimensions: one tuple can be named many times, and each time is a copy.
func integers(v any) ([]int64, bool) {
	s, ok := v.(*sequence)
	if !ok || len(s.items) > maxDims {
		return nil, false
	}
	ns := make([]int64, len(s.items))
	for i, x := range s.items {
		if ns[i], ok = x.(int64); !ok {
			return nil, false
		}
	}
	return ns, true
}

func isBool(v any) bool {
	_, ok := v.(bool)
	return ok
}

func isEmptyDict(v any) bool {
	d, ok := v.(*dict)
	return ok && len(d.items) == 0
}
