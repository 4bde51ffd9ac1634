package producer

import (
	"fmt"
	"strings"

	"hsx/format"
)

// Match is a dump whose producer is known.
type Match struct {
	// Origin is that of every sample. LayersFrom is "flag", "data_config.json",
	// "manifest.json" or "" (nobody); Target is the user's and what the dump says beside it.
	format.Origin

	Title  string
	Why    string        // in one clause: which keys, ranks and widths decided
	Layers format.Layers // of the dump's states, nil when nobody names them; tensor names are not in it
	Norm   format.Norm   // of a final state, unless a record says otherwise itself

	layout *layout
	dump   Dump
	facts  Facts
	items  []format.Value
}

// Recognise says whose dump d is. Its errors are [*AmbiguousError], [*UnknownError]
// and [*FieldError].
func Recognise(d Dump, f Facts) (*Match, error) {
	items, isList := d.Value.([]format.Value)
	if !isList {
		items = []format.Value{d.Value}
	}
	var rec *format.Record
	for _, v := range items {
		if r, ok := v.(*format.Record); ok && r != nil {
			rec = r
			break
		}
	}
	if rec == nil {
		return nil, &UnknownError{Producer: f.Producer, Reason: "it is " + kindOf(d.Value) + ", want named tensors"}
	}
	v := &view{rec: rec, meta: d.Metadata, row: d.Row, facts: &f}
	find := recognise
	if f.Producer != "" || len(f.Map) > 0 {
		find = forced
	}
	l, because, err := find(v, d.Container, isList)
	if err != nil {
		return nil, err
	}
	if l.target != nil {
		if f.Target, err = l.target(v); err != nil {
			return nil, err
		}
	}
	m := &Match{
		Origin: format.Origin{Producer: l.name, Shifted: l.shifted, Target: f.Target},
		Title:  l.title, Norm: l.norm, Why: because + ": " + shapes(rec),
		layout: l, dump: d, facts: f, items: items,
	}
	if isList {
		m.Why = fmt.Sprintf("a list of %d, %s", len(items), m.Why)
	}
	switch f.Final {
	case FinalPre:
		m.Norm = format.NormPre
	case FinalPost:
		m.Norm = format.NormPost
	}
	if err := m.nameLayers(); err != nil {
		return nil, err
	}
	if err := m.settle(v); err != nil {
		return nil, err
	}
	return m, nil
}

// settle asks early what would stop every sample: names that have no one meaning,
// and a tensor whose content nothing decides.
func (m *Match) settle(v *view) error {
	all, err := m.layout.take(v)
	if err != nil {
		if m.layout.gather != nil {
			return err
		}
		return nil // damage of one record is reported with its sample
	}
	for i := range all {
		p := &all[i]
		if p.bare.t == nil || p.maybeSlotted && len(p.bare.t.Shape) == 3 {
			continue
		}
		rows, err := p.bare.rows()
		if err != nil {
			continue
		}
		_, because, err := decide(p.bare.key, rows.Width, v.facts)
		if err != nil {
			return err
		}
		if i == 0 {
			m.Why += "; " + because
		}
	}
	return nil
}

// recognise finds the one layout that fits.
func recognise(v *view, c Container, isList bool) (*layout, string, error) {
	var found []layout
	var because string
	for _, l := range specs() {
		if !l.reads(c) || !l.items.allow(isList) || !l.holds(v.rec) {
			continue
		}
		why := "the key set"
		if l.fits != nil {
			var ok bool
			var err error
			if why, ok, err = l.fits(v); err != nil {
				return nil, "", err
			} else if !ok {
				continue
			}
		}
		because = why
		found = append(found, l)
	}
	switch len(found) {
	case 0:
		return nil, "", &UnknownError{Keys: v.rec.Keys()}
	case 1:
		return &found[0], because, nil
	}
	names := make([]string, len(found))
	for i, l := range found {
		names[i] = l.name
	}
	return nil, "", &AmbiguousError{Candidates: names, Decides: "naming the producer (--producer)"}
}

// forced takes the user's word for the producer, and asks only for what is needed
// to read the record so.
func forced(v *view, _ Container, isList bool) (*layout, string, error) {
	name := v.facts.Producer
	if len(v.facts.Map) > 0 {
		if name != "" && name != "arrays" {
			return nil, "", &UnknownError{Producer: name, Reason: "names are mapped (--map), which is for arrays alone"}
		}
		name = "arrays"
	}
	reason := "no such producer, want one of " + strings.Join(Names(), ", ")
	for _, l := range specs() {
		if l.name != name {
			continue
		}
		if !l.items.allow(isList) {
			reason = "it is a single record, want a list"
			if isList {
				reason = "it is a list, want a single record"
			}
			continue
		}
		if key := l.missing(v.rec); key != "" {
			reason = "it needs " + strings.Join(l.needed(), ", ") + ", and " + key + " is missing or of another kind"
			continue
		}
		return &l, "named by the user", nil
	}
	return nil, "", &UnknownError{Keys: v.rec.Keys(), Producer: name, Reason: reason}
}

func (l *layout) reads(c Container) bool {
	if c == Safetensors {
		c = Torch
	}
	return c == l.from
}

func (i items) allow(isList bool) bool {
	return i == oneOrMany || (i == many) == isList
}

// nameLayers settles which layers the dump's states are of, and whether those who
// say so agree.
func (m *Match) nameLayers() error {
	beside, from, err := m.layout.beside(m.dump.Siblings)
	if err != nil {
		return err
	}
	said := m.facts.Layers
	switch {
	case len(said) > 0:
		m.Layers, m.LayersFrom, m.Convention = said, "flag", m.facts.Convention
		if beside != nil && !agree(said, beside, m.layout.lastIsFinal) {
			return unsupported("", "layers were named as %s, but %s says %s: leave one of the two out", said, from, beside)
		}
	case beside != nil:
		m.Layers, m.LayersFrom, m.Convention = beside, from, format.PostLayer
	}
	if err := m.Layers.Check(m.facts.Target.Layers); err != nil {
		return &FieldError{Kind: format.ErrUnsupported, Err: err}
	}
	return nil
}

// agree reports whether the user's list is that of the file beside the dump, which
// may name the final state as well.
func agree(said, beside format.Layers, lastIsFinal bool) bool {
	if lastIsFinal && len(said) == len(beside)-1 {
		beside = beside[:len(said)]
	}
	return said.IDs(format.PostLayer) == beside.IDs(format.PostLayer)
}

// shapes lists the record's tensors for the reader of [Match].Why.
func shapes(rec *format.Record) string {
	const most = 8
	var out []string
	for _, f := range rec.Fields {
		s := label(f.Key)
		switch v := f.Value.(type) {
		case *format.Tensor:
			if v != nil {
				s += fmt.Sprint(" ", v.Shape)
			}
		case []format.Value:
			s += fmt.Sprintf(" (list of %d)", len(v))
		case nil:
			s += " (None)"
		}
		if out = append(out, s); len(out) == most && len(rec.Fields) > most {
			out = append(out, fmt.Sprintf("%d more", len(rec.Fields)-most))
			break
		}
	}
	return strings.Join(out, ", ")
}
