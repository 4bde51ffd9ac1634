package producer

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// layout is one way in which a producer stores a sample: its keys and what they
// hold. A key of "" means that the layout has no such value.
type layout struct {
	name      string
	title     string
	norm      format.Norm // of the final state, by habit
	numbering string
	from      Container // Torch stands for every container of named tensors but Arrays and JSON

	ids, mask, attention string
	aux                  string // [T, W]: the aux states side by side
	slotted              string // [T, S, H]: one state per slot
	listed               string // a list of [T, H]
	bare                 string // [T, W]: aux states or the final, for width to say
	final                string // [T, H]
	id                   string

	optional []string // of the keys above, those that may be missing or None
	marks    []string // further keys that must be there to recognise the layout
	absent   []string // keys, even of None, that make it another layout
	ignored  []string // further keys that may be there

	lastIsFinal bool // the last slot is the final state
	batched     bool // the first dimension of every tensor counts samples
	items       items
	shifted     bool // ids and mask are stored one position to the left

	// fits decides where the key set does not, and says in one clause what decided.
	// nil means that the key set does.
	fits func(v *view) (because string, ok bool, err error)
	// gather picks the parts of a record whose names are not fixed. nil means that
	// the keys above are all there is.
	gather func(v *view) ([]parts, error)
	// target is the user's, and what the file says of it beside its tensors. nil means
	// that such files say nothing.
	target func(v *view) (format.Target, error)
}

// items says whether a layout is a record, a list of records, or may be either.
type items uint8

const (
	one items = iota
	many
	oneOrMany
)

// view is a record and what can be known when it is looked at.
type view struct {
	rec   *format.Record
	meta  map[string]string
	row   *Row
	facts *Facts
}

// parts are the values of a record in the roles that they play in one sample.
type parts struct {
	ids, mask, attention       field
	aux, slotted, bare, final  field
	slots                      []field // listed states, one per slot
	named                      []field // states whose layer is known, in ascending order
	layers                     format.Layers
	idKey                      string
	id, prenorm                format.Value
	norm                       format.Norm // of the final, when the file says it beside its tensors
	maybeSlotted, batchedParts bool
	err                        error // why these parts make no sample
}

// prenormKey is read by ModelOpt's loader; it says what the final state is.
const prenormKey = "hidden_states_prenorm"

func specs() []layout {
	var all []layout
	for _, family := range [][]layout{specforge(), speculators(), vllm(), sglang(), modelopt(), angelslim(), torchspec(), automodel(), eagle(), emitted(), arrays()} {
		all = append(all, family...)
	}
	return all
}

// needed are the keys without which there is nothing to read.
func (l *layout) needed() []string {
	var keys []string
	for _, k := range []string{l.ids, l.mask, l.attention, l.aux, l.slotted, l.listed, l.bare, l.final, l.id} {
		if k != "" && !slices.Contains(l.optional, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (l *layout) keys() string {
	keys := l.needed()
	for _, k := range l.marks {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	s := strings.Join(keys, ", ")
	if l.gather != nil {
		s = "named by the user, or after their content"
	}
	if l.items == many {
		s = "a list of {" + s + "}"
	}
	return s
}

// missing is the first needed key that the record does not hold, "" when all are
// there.
func (l *layout) missing(rec *format.Record) string {
	for _, k := range l.needed() {
		v, ok := rec.Get(k)
		if _, isList := v.([]format.Value); !ok || isList != (k == l.listed) {
			return k
		}
		if v == nil {
			return k
		}
	}
	return ""
}

// holds reports whether the record's key set is the layout's. Values that hold no
// numbers (strings, None) never keep a record from being recognised.
func (l *layout) holds(rec *format.Record) bool {
	if l.gather != nil {
		return true // it says itself what it cannot read
	}
	if l.missing(rec) != "" {
		return false
	}
	for _, k := range l.absent {
		if _, ok := rec.Get(k); ok {
			return false
		}
	}
	for _, k := range l.marks {
		if _, ok := rec.Get(k); !ok {
			return false
		}
	}
	for _, f := range rec.Fields {
		switch f.Value.(type) {
		case *format.Tensor, *format.Record, []format.Value:
			if !l.knows(f.Key) {
				return false
			}
		}
	}
	return true
}

func (l *layout) knows(key string) bool {
	switch key {
	case l.ids, l.mask, l.attention, l.aux, l.slotted, l.listed, l.bare, l.final, l.id:
		return key != ""
	}
	return slices.Contains(l.marks, key) || slices.Contains(l.ignored, key)
}

// take picks the layout's parts out of a record.
func (l *layout) take(v *view) ([]parts, error) {
	if l.gather != nil {
		return l.gather(v)
	}
	var p parts
	p.batchedParts = l.batched
	for _, want := range []struct {
		key string
		to  *field
	}{
		{l.ids, &p.ids}, {l.mask, &p.mask}, {l.attention, &p.attention}, {l.aux, &p.aux},
		{l.slotted, &p.slotted}, {l.bare, &p.bare}, {l.final, &p.final},
	} {
		if want.key == "" {
			continue
		}
		value, ok := v.rec.Get(want.key)
		if value == nil && slices.Contains(l.optional, want.key) {
			continue
		}
		t, isTensor := value.(*format.Tensor)
		switch {
		case !ok:
			return nil, unsupported(want.key, "is missing from the record, which holds %s", list(v.rec.Keys()))
		case !isTensor || t == nil:
			return nil, unsupported(want.key, "is %s, want a tensor", kindOf(value))
		}
		*want.to = field{want.key, t}
	}
	if l.listed != "" {
		slots, err := tensorList(v.rec, l.listed)
		if err != nil {
			return nil, err
		}
		p.slots = slots
	}
	if l.id != "" {
		p.idKey = l.id
		p.id, _ = v.rec.Get(l.id)
	}
	p.prenorm, _ = v.rec.Get(prenormKey)
	return []parts{p}, nil
}

func tensorList(rec *format.Record, key string) ([]field, error) {
	v, _ := rec.Get(key)
	values, ok := v.([]format.Value)
	if !ok || len(values) == 0 {
		return nil, unsupported(key, "is %s, want a list of states", kindOf(v))
	}
	if len(values) > mostStates {
		return nil, tooMany(key, int64(len(values)))
	}
	fields := make([]field, len(values))
	for i, v := range values {
		name := fmt.Sprintf("%s[%d]", key, i)
		t, ok := v.(*format.Tensor)
		if !ok || t == nil {
			return nil, unsupported(name, "is %s, want a tensor", kindOf(v))
		}
		fields[i] = field{name, t}
	}
	return fields, nil
}
