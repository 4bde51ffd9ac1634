package torch_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/format"
	"hsx/format/torch"
)

// maker makes a record of the bytes of the fuzzer, zeros when there are no more.
type maker struct {
	data []byte
	bad  bool // it made what Encode has to refuse
}

func (m *maker) take(n int) []byte {
	out := make([]byte, n)
	m.data = m.data[copy(out, m.data):]
	return out
}

func (m *maker) n(below int) int { return int(m.take(1)[0]) % below }

func (m *maker) text() string {
	s := string(m.take(m.n(9)))
	m.bad = m.bad || !utf8.ValidString(s)
	return s
}

func (m *maker) record(depth int) *format.Record {
	r := &format.Record{}
	for range m.n(6) {
		key := m.text()
		_, taken := r.Get(key)
		m.bad = m.bad || taken
		r.Fields = append(r.Fields, format.Field{Key: key, Value: m.value(depth)})
	}
	return r
}

func (m *maker) value(depth int) format.Value {
	switch m.n(12) {
	case 0:
		return nil
	case 1:
		return m.n(2) == 0
	case 2:
		n := int64(0)
		for _, b := range m.take(m.n(9)) {
			n = n<<8 | int64(b)
		}
		return n
	case 3:
		return -1 - float64(m.n(256))/3
	case 4:
		return m.text()
	case 5, 6:
		if depth < 4 {
			return m.record(depth + 1)
		}
	case 7, 8:
		vs := []format.Value{}
		for range m.n(6) {
			if depth < 4 {
				vs = append(vs, m.value(depth+1))
			}
		}
		return vs
	}
	t := &format.Tensor{DType: format.Bool + format.DType(m.n(int(format.Float64)))}
	n := t.DType.Size()
	for range m.n(5) {
		d := m.n(4)
		t.Shape = append(t.Shape, int64(d))
		n *= d
	}
	t.Data = m.take(n)
	return t
}

// FuzzEncode wants Decode to give back what Encode took.
func FuzzEncode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x03\x01a\x00\x01b\x02\x08\xff\xff\xff\xff\xff\xff\xff\xfe\x01c\x09\x0b\x02\x03\x02\x01\x02\x03\x04\x05\x06"))
	f.Add([]byte("\x05\x01a\x07\x02\x00\x0a\x0d\x00\x01b\x05\x01\x01c\x09\x06\x04\x01\x03\x00\x02\x01d\x04\x02\xc3\xa9\x01e\x03\x09\x01f\x01\x01"))
	f.Add([]byte("\x02\x01a\x00\x01a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &maker{data: data}
		want := m.record(0)
		var b bytes.Buffer
		if err := torch.Encode(&b, "x", want); (err != nil) != m.bad {
			t.Fatalf("Encode: got error %v, want one: %t", err, m.bad)
		} else if err != nil {
			return
		}
		if !bytes.Equal(b.Bytes(), encode(t, "x", want)) {
			t.Error("Encode: two runs differ")
		}
		got := record(t, b.Bytes(), torch.Options{})
		// Decode names what it finds, and a slice without elements may be nil.
		same := cmp.Options{cmpopts.IgnoreFields(format.Tensor{}, "Name", "Storage"), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("Decode (-want +got):\n%s", diff)
		}
	})
}
