package producer

import (
	"iter"

	"hsx/format"
)

// Samples yields the dump's samples. Their ids are the producer's own, or empty;
// Input and Last are the caller's to fill. States alias the dump's bytes, except
// where JSON numbers are stored in two bytes each. The yielded errors are
// [*FieldError], [*AmbiguousError] and [*UnknownError]; an error concerns one sample
// and the next may be good.
func (m *Match) Samples() iter.Seq2[*format.Sample, error] {
	return func(yield func(*format.Sample, error) bool) {
		for i, v := range m.items {
			for s, err := range m.record(v) {
				if err != nil && len(m.items) > 1 {
					err = inItem(i, err)
				}
				if !yield(s, err) {
					return
				}
			}
		}
	}
}

// record yields the samples of one record: one, unless its tensors count samples or
// its names do.
func (m *Match) record(value format.Value) iter.Seq2[*format.Sample, error] {
	return func(yield func(*format.Sample, error) bool) {
		rec, ok := value.(*format.Record)
		if !ok || rec == nil {
			yield(nil, unsupported("", "dump is %s, want named tensors", kindOf(value)))
			return
		}
		all, err := m.layout.take(&view{rec: rec, meta: m.dump.Metadata, row: m.dump.Row, facts: &m.facts})
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range all {
			if all[i].batchedParts {
				m.batch(&all[i], yield)
				return
			}
			s, err := m.sample(&all[i])
			if err != nil && len(all) > 1 {
				err = inItem(i, err)
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// batch yields the samples of tensors whose first dimension counts them. The parts
// of each are made when it is its turn, so that many tiny samples cost no memory.
func (m *Match) batch(p *parts, yield func(*format.Sample, error) bool) {
	fields := []*field{&p.ids, &p.mask, &p.attention, &p.aux}
	strides := make([][]int64, len(fields))
	n := 0
	for i, f := range fields {
		if f.t == nil {
			continue
		}
		shape, st, err := f.dims()
		if err == nil && len(shape) < 2 {
			err = unsupported(f.key, "has shape %v, want a first dimension that counts samples", shape)
		}
		if err == nil && n > 0 && int(shape[0]) != n {
			err = corrupt(f.key, "has %d samples, %s has %d", shape[0], p.ids.key, n)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		n, strides[i] = int(shape[0]), st
	}
	for j := range n {
		q := *p
		for i, f := range []*field{&q.ids, &q.mask, &q.attention, &q.aux} {
			*f = f.item(j, strides[i])
		}
		s, err := m.sample(&q)
		if err != nil && n > 1 {
			err = inItem(j, err)
		}
		if !yield(s, err) {
			return
		}
	}
}

func (m *Match) sample(p *parts) (*format.Sample, error) {
	if p.err != nil {
		return nil, p.err
	}
	id, err := sampleID(p.idKey, p.id)
	if err != nil {
		return nil, err
	}
	ids, err := p.ids.tokenIDs()
	if err != nil {
		return nil, err
	}
	mask, err := m.lossMask(p, ids)
	if err != nil {
		return nil, err
	}
	hidden, err := m.hidden(p, len(ids))
	if err != nil {
		return nil, err
	}
	keep := len(ids)
	if p.attention.t != nil {
		if keep, err = p.attention.attended(len(ids)); err != nil {
			return nil, err
		}
	} else if m.facts.TrimPadding && !m.Shifted {
		keep = unpadded(ids, mask)
	}
	s := &format.Sample{ID: id, Origin: m.Origin, Tokens: ids[:keep:keep], Hidden: hidden}
	if mask != nil {
		s.LossMask = mask[:keep:keep]
	}
	for i := range hidden {
		hidden[i].Rows = exact(hidden[i].Rows.Slice(keep))
	}
	return s, nil
}

// lossMask is the sample's own mask, or that of its row in the dataset beside it,
// whose tokens have to be the sample's: a file may belong to another row.
func (m *Match) lossMask(p *parts, ids []int32) ([]byte, error) {
	row := m.dump.Row
	if row != nil && m.layout.name == "speculators" {
		if len(ids) != len(row.Tokens) {
			return nil, corrupt(p.ids.key, "has %d values, row %d of the dataset has %d tokens", len(ids), row.Index, len(row.Tokens))
		}
		for i, id := range ids {
			if id != row.Tokens[i] {
				return nil, corrupt(p.ids.key, "differs from row %d of the dataset at position %d: %d, want %d", row.Index, i, id, row.Tokens[i])
			}
		}
		if row.LossMask != nil && len(row.LossMask) != len(ids) {
			return nil, corrupt("loss_mask", "of row %d has %d values for %d tokens", row.Index, len(row.LossMask), len(ids))
		}
		return row.LossMask, nil
	}
	if p.mask.t == nil {
		return nil, nil
	}
	mask, err := p.mask.mask()
	if err == nil && len(mask) != len(ids) {
		err = corrupt(p.mask.key, "has %d values for %d tokens", len(mask), len(ids))
	}
	return mask, err
}

// exact drops the bytes behind the last row, which belong to somebody else.
func exact(r format.Rows) format.Rows {
	end := (r.N-1)*r.Stride + r.RowBytes()
	r.Data = r.Data[:end:end]
	return r
}
