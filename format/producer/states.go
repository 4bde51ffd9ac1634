package producer

import (
	"hsx/format"
)

// states are a sample's state tensors as pieces, before layers are named.
type states struct {
	aux    []piece
	final  piece // the zero piece when the dump has no final of its own
	slots  bool  // aux are slots, the last of which may be the final
	layers format.Layers
}

// hidden makes the states of a sample of n tokens: ascending, the final last.
func (m *Match) hidden(p *parts, n int) ([]format.Hidden, error) {
	st, err := m.pieces(p, n)
	if err != nil {
		return nil, err
	}
	if st.slots {
		if err := m.lastSlot(&st); err != nil {
			return nil, err
		}
	}
	if len(st.layers) > 0 && len(st.layers) != len(st.aux) {
		return nil, unsupported("", "dump holds %d aux states, but %d layers are named: %s", len(st.aux), len(st.layers), st.layers)
	}
	norm, err := m.norm(p)
	if err != nil {
		return nil, err
	}
	if m.facts.Final.there() && st.final.key == "" {
		return nil, unsupported("", "dump holds no final state, but --final %s says that it does", m.facts.Final)
	}
	if m.facts.Final == FinalNone {
		st.final = piece{}
	}
	out := make([]format.Hidden, 0, len(st.aux)+1)
	for i, a := range st.aux {
		s := format.State{Role: format.RoleBlock, Block: i}
		if len(st.layers) > 0 {
			s = format.State{Role: format.RoleLayer, Layer: st.layers[i]}
		}
		out = append(out, format.Hidden{State: s, Rows: a.rows})
		if err := m.checkWidth(a); err != nil {
			return nil, err
		}
	}
	if st.final.key != "" {
		out = append(out, format.Hidden{State: format.State{Role: format.RoleFinal, Norm: norm}, Rows: st.final.rows})
		if err := m.checkWidth(st.final); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, unsupported("", "dump holds no state but the final, which --final none leaves out")
	}
	for i := range out {
		out[i].State.DType = out[i].Rows.DType
	}
	return out, m.sameWidth(&st)
}

func (m *Match) sameWidth(st *states) error {
	all := st.aux
	if st.final.key != "" {
		all = append(all[:len(all):len(all)], st.final)
	}
	for _, p := range all {
		if p.rows.Width != all[0].rows.Width {
			return unsupported(p.key, "is %d wide, %s is %d: want one hidden size", p.rows.Width, label(all[0].key), all[0].rows.Width)
		}
	}
	return nil
}

// pieces reads the state tensors and cuts them into one piece per state.
func (m *Match) pieces(p *parts, n int) (states, error) {
	st := states{layers: m.Layers}
	var err error
	if p.final.t != nil {
		if st.final, err = m.piece(p.final, n); err != nil {
			return st, err
		}
	}
	switch slotted := p.slotTensor(n); {
	case slotted.t != nil:
		st.slots = true
		rows, err := slotted.slots()
		if err != nil {
			return st, err
		}
		for _, r := range rows {
			a, err := m.check(slotted.key, r, n)
			if err != nil {
				return st, err
			}
			st.aux = append(st.aux, a)
		}
	case len(p.slots) > 0:
		st.slots = true
		st.aux, err = m.all(p.slots, n)
	case len(p.named) > 0:
		if st.aux, err = m.all(p.named, n); err != nil {
			return st, err
		}
		if len(m.Layers) > 0 && m.Layers.IDs(format.PostLayer) != p.layers.IDs(format.PostLayer) {
			return st, unsupported("", "tensors are named after the layers %s, but %s says %s", p.layers, m.LayersFrom, m.Layers)
		}
		if err := p.layers.Check(m.Target.Layers); err != nil {
			return st, &FieldError{Kind: format.ErrUnsupported, Err: err}
		}
		st.layers = p.layers
	case p.aux.t != nil:
		var a piece
		if a, err = m.piece(p.aux, n); err == nil {
			if st.final.key != "" {
				// Before the aux width is divided by it.
				err = m.checkWidth(st.final)
			}
			if err == nil {
				st.aux, err = m.split(a, st.final)
			}
		}
	case p.bare.t != nil:
		err = m.open(p.bare, n, &st)
	}
	return st, err
}

// open reads a tensor whose name does not say what it holds.
func (m *Match) open(f field, n int, st *states) error {
	a, err := m.piece(f, n)
	if err != nil {
		return err
	}
	c, _, err := decide(f.key, a.rows.Width, &m.facts)
	switch {
	case err != nil:
		return err
	case c == finalOnly:
		st.final = a
		return nil
	case c == auxOnly:
		st.aux, err = m.split(a, piece{})
		return err
	}
	h := a.rows.Width / (len(m.Layers) + 1)
	w := h * len(m.Layers)
	st.final = piece{f.key, columns(a.rows, w, h)}
	st.aux, err = m.split(piece{f.key, columns(a.rows, 0, w)}, st.final)
	return err
}

func (m *Match) all(fields []field, n int) ([]piece, error) {
	out := make([]piece, len(fields))
	for i, f := range fields {
		var err error
		if out[i], err = m.piece(f, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *Match) piece(f field, n int) (piece, error) {
	rows, err := f.rows()
	if err != nil {
		return piece{}, err
	}
	return m.check(f.key, rows, n)
}

func (m *Match) check(key string, rows format.Rows, n int) (piece, error) {
	switch {
	case rows.N < n:
		return piece{}, corrupt(key, "has %d rows for %d tokens (a prefix-cache hit leaves only a suffix)", rows.N, n)
	case rows.N > n:
		return piece{}, corrupt(key, "has %d rows for %d tokens", rows.N, n)
	}
	rows, err := m.retype(key, rows)
	return piece{key, rows}, err
}

// slotTensor is the tensor that holds slots, if one does. A plain array of rank 3
// may hold slots or have a batch dimension; the number of tokens tells.
func (p *parts) slotTensor(n int) field {
	if p.slotted.t != nil || !p.maybeSlotted {
		return p.slotted
	}
	for _, f := range []field{p.aux, p.bare} {
		if f.t != nil && len(f.t.Shape) == 3 && (f.t.Shape[0] != 1 || f.t.Shape[1] != int64(n)) {
			return f
		}
	}
	return field{}
}

// lastSlot decides whether the last slot is the final state. Slots hold states
// before the norm, so the last layer's state and the final are the same tensor.
func (m *Match) lastSlot(st *states) error {
	if st.final.key != "" {
		return nil
	}
	slots, n, depth := len(st.aux), len(st.layers), m.facts.Target.Layers
	said := m.facts.Final.there()
	final := m.layout.lastIsFinal || said
	switch {
	case m.facts.Final == FinalNone:
		final = false
	case n == 0:
	case n == slots && depth > 0:
		final = int(st.layers[n-1]) == depth-1
		if said && !final {
			return unsupported("", "all %d slots are named and the last is %s, so none is the final (P_%d) that --final %s says is there", slots, st.layers[n-1], depth-1, m.facts.Final)
		}
	case n == slots && said && !m.layout.lastIsFinal:
		return unsupported("", "all %d slots are named as layers, and --final %s says that one is the final: the target's config (--target) says whether it is %s, or leave it out of the list", slots, m.facts.Final, st.layers[n-1])
	case n == slots:
	case n == slots-1 && final && depth > 0 && int(st.layers[n-1]) == depth-1 && m.facts.Final != FinalPost:
		return unsupported("", "%s is the target's last layer, but one more slot follows it: %d layers are named for %d slots", st.layers[n-1], n, slots)
	case n == slots-1 && !final:
		return unsupported("", "dump has %d slots, but %d layers are named (if the last slot is the final, --final pre says so)", slots, n)
	case n != slots-1:
		return unsupported("", "dump has %d slots, but %d layers are named: %s", slots, n, st.layers)
	}
	if final {
		st.final, st.aux = st.aux[slots-1], st.aux[:slots-1]
		st.layers = st.layers[:min(n, slots-1)]
	}
	return nil
}

// norm is the norm state of the final: what the user says, else what the record
// says of itself, else the producer's habit.
func (m *Match) norm(p *parts) (format.Norm, error) {
	if p.norm != format.NormUnknown {
		if m.facts.Final.there() && m.Norm != p.norm {
			return 0, unsupported(factNorm, "is %s in the metadata, but --final %s says the contrary", p.norm, m.facts.Final)
		}
		return p.norm, nil
	}
	switch pre := p.prenorm.(type) {
	case nil:
		return m.Norm, nil
	case bool:
		norm := format.NormPost
		if pre {
			norm = format.NormPre
		}
		if m.facts.Final.there() && m.Norm != norm {
			return 0, unsupported(prenormKey, "is %t, but --final %s says the contrary", pre, m.facts.Final)
		}
		return norm, nil
	}
	return 0, unsupported(prenormKey, "is %s, want a bool", kindOf(p.prenorm))
}
