package torch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"hsx/format"
)

// pickler writes a pickle of protocol 2, opcode for opcode as CPython's pickler does for
// torch.save: with a memo slot for every object, though only a few are read again.
type pickler struct {
	buf      []byte
	puts     int            // memo slots given so far
	slots    map[string]int // of the code of what comes again
	storages [][]byte       // the data of storages 0, 1, …
}

// value writes v, which lies in depth containers.
func (p *pickler) value(v format.Value, depth int) error {
	if len(p.buf) > maxEncoded {
		return fmt.Errorf("pickle has more than %d bytes", maxEncoded)
	}
	switch v := v.(type) {
	case nil:
		p.op(opNone)
		return nil
	case bool:
		if v {
			p.op(opNewTrue)
		} else {
			p.op(opNewFalse)
		}
		return nil
	case int64:
		p.int(v)
		return nil
	case float64:
		p.op(opBinFloat)
		p.buf = binary.BigEndian.AppendUint64(p.buf, math.Float64bits(v))
		return nil
	case string:
		return p.text(v)
	}
	if depth >= maxNesting {
		return fmt.Errorf("values are nested more than %d deep", maxNesting)
	}
	switch v := v.(type) {
	case []format.Value:
		return p.list(v, depth)
	case *format.Record:
		return p.dict(v, depth)
	case *format.Tensor:
		return p.tensor(v)
	}
	return fmt.Errorf("value has the type %T, want one that a record can hold", v)
}

func (p *pickler) list(vs []format.Value, depth int) error {
	p.op(opEmptyList)
	p.put()
	return p.items(len(vs), opAppend, opAppends, func(i int) error { return p.value(vs[i], depth+1) })
}

func (p *pickler) dict(r *format.Record, depth int) error {
	if r == nil {
		return errors.New("record is missing, want one, or nil for None")
	}
	p.op(opEmptyDict)
	p.put()
	seen := make(map[string]bool, len(r.Fields))
	return p.items(len(r.Fields), opSetItem, opSetItems, func(i int) error {
		key := r.Fields[i].Key
		if seen[key] {
			return fmt.Errorf("key %q is there twice", clip(key))
		}
		seen[key] = true
		err := p.text(key)
		if err == nil {
			err = p.value(r.Fields[i].Value, depth+1)
		}
		if err != nil && depth == 0 {
			err = fmt.Errorf("key %q: %w", clip(key), err)
		}
		return err
	})
}

// items writes the content of a container as CPython does: one item by itself, several in
// batches of a thousand, which bounds a reader's stack.
func (p *pickler) items(n int, one, many byte, write func(i int) error) error {
	const batch = 1000
	if n == 1 {
		err := write(0)
		p.op(one)
		return err
	}
	for i := range n {
		if i%batch == 0 {
			p.op(opMark)
		}
		if err := write(i); err != nil {
			return err
		}
		if i%batch == batch-1 || i == n-1 {
			p.op(many)
		}
	}
	return nil
}

// tensor writes the call that rebuilds a tensor from the next storage. An element type
// that has no storage class is named by itself, over a storage of bytes.
func (p *pickler) tensor(t *format.Tensor) error {
	data, err := denseData(t)
	if err != nil {
		return err
	}
	if len(p.storages) == maxTensors {
		return fmt.Errorf("record has more than %d tensors", maxTensors)
	}
	rebuild, module, class := "_rebuild_tensor_v2", "torch", storageName(t.DType)
	elems := int64(len(data) / t.DType.Size())
	typed := class != ""
	if !typed {
		rebuild, module, class = "_rebuild_tensor_v3", "torch.storage", "UntypedStorage"
		elems = int64(len(data))
	}
	p.global("torch._utils", rebuild)
	p.op(opMark, opMark)
	p.shared(textCode("storage"))
	p.global(module, class)
	p.new(textCode(strconv.Itoa(len(p.storages))))
	p.shared(textCode("cpu"))
	p.int(elems)
	p.new(string(opTuple))
	p.op(opBinPersID)
	p.int(0)
	p.ints(t.Shape)
	p.ints(denseStrides(t.Shape))
	p.op(opNewFalse)
	p.global("collections", "OrderedDict")
	p.op(opEmptyTuple)
	p.new(string(opReduce))
	if !typed {
		p.global("torch", t.DType.String())
	}
	p.new(string(opTuple))
	p.new(string(opReduce))
	p.storages = append(p.storages, data)
	return nil
}

// text writes a string of the record.
func (p *pickler) text(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("string %q is not UTF-8", clip(s))
	}
	if len(s) > maxEncoded {
		return fmt.Errorf("string has %d bytes, want at most %d", len(s), maxEncoded)
	}
	p.new(textCode(s))
	return nil
}

func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.op(opBinInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.op(opBinInt2, byte(n), byte(n>>8))
	case n == int64(int32(n)):
		p.op(opBinInt)
		p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(n))
	default: // as few bytes as hold it and its sign
		size := bits.Len64(uint64(n^n>>63))/8 + 1
		p.op(opLong1, byte(size))
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		p.op(b[:size]...)
	}
}

// ints writes a tuple of integers.
func (p *pickler) ints(ns []int64) {
	if len(ns) == 0 {
		p.op(opEmptyTuple)
		return
	}
	end := opTuple1 + len(ns) - 1
	if len(ns) > 3 {
		p.op(opMark)
		end = opTuple
	}
	for _, n := range ns {
		p.int(n)
	}
	p.op(byte(end))
	p.put()
}

func (p *pickler) global(module, name string) {
	p.shared(string(opGlobal) + module + "\n" + name + "\n")
}

// shared writes the code of an object, or the slot that it has had since it came first.
func (p *pickler) shared(code string) {
	slot, ok := p.slots[code]
	if !ok {
		p.slots[code] = p.puts
		p.new(code)
		return
	}
	p.slot(opBinGet, opLongBinGet, slot)
}

// new writes the code of an object and gives the object a slot.
func (p *pickler) new(code string) {
	p.buf = append(p.buf, code...)
	p.put()
}

// put gives the object on top of the stack the next slot.
func (p *pickler) put() {
	p.slot(opBinPut, opLongBinPut, p.puts)
	p.puts++
}

func (p *pickler) slot(short, long byte, i int) {
	if i <= math.MaxUint8 {
		p.op(short, byte(i))
		return
	}
	p.op(long)
	p.buf = binary.LittleEndian.AppendUint32(p.buf, uint32(i))
}

func (p *pickler) op(code ...byte) { p.buf = append(p.buf, code...) }

func textCode(s string) string {
	var size [4]byte
	binary.LittleEndian.PutUint32(size[:], uint32(len(s)))
	return string(opBinUnicode) + string(size[:]) + s
}
