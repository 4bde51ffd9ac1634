package format

// Value is what a container can hold: *Tensor, *Record, []Value, string, int64,
// float64, bool or nil.
type Value any

// Field is one named value of a record.
type Field struct {
	Key   string
	Value Value
}

// Record is a set of named values in the order of the file: what a codec makes of
// one container, before a producer says what the names mean.
type Record struct {
	Fields []Field
}

// Get is the value of a key, and whether there is one. The key may map to nil: a
// pickled None.
func (r *Record) Get(key string) (Value, bool) {
	for _, f := range r.Fields {
		if f.Key == key {
			return f.Value, true
		}
	}
	return nil, false
}

// Tensor is the tensor of a key, nil when the key is absent or holds something else.
func (r *Record) Tensor(key string) *Tensor {
	v, _ := r.Get(key)
	t, _ := v.(*Tensor)
	return t
}

// Keys are the names in file order.
func (r *Record) Keys() []string {
	keys := make([]string, len(r.Fields))
	for i, f := range r.Fields {
		keys[i] = f.Key
	}
	return keys
}
