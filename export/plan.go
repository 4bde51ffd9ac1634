package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
)

// Plan is what an export is going to write.
type Plan struct {
	Layers  format.Layers // of the aux states, ascending
	Final   format.Norm   // of the final as it is written; unknown too when there is none
	Normed  string        // how the final is normed on the way; "": it is not
	Samples int
	Tokens  int64
	Bytes   int64 // of their states
	LeftOut int   // samples that were not selected
	Refused int   // samples that were, and that the reader would not take
	Splits  []SplitCount

	ds          *shard.Dataset
	opt         Options
	target      producer.TargetDescription
	choice      string // the target's name for producer.Choose
	norm        *Norm  // nil: the final is written as it is
	readers     []Reader
	source      string         // XXH3-128 of the dataset's manifest
	states      []format.State // as they are written
	tokenBytes  int64          // of the states of one token
	rows        []*row         // in the order of their numbers
	units       []*unit
	lastRefusal Refusal
}

// SplitCount is one split, or all of an export that has none.
type SplitCount struct {
	Name    string `json:"name"` // "" when the export has no splits
	Samples int    `json:"samples"`
	Tokens  int64  `json:"tokens"`
}

// unit is what a worker writes at a time: one file, or one directory of arrays.
type unit struct {
	name   string // in the export's directory, with slashes
	rows   []*row
	stream stream
}

// stream says what of its rows a unit holds.
type stream uint8

const (
	oneSample stream = iota // all of one, as its reader wants it
	tokenRows               // an Arrow stream of ids and masks
	stateRows               // an Arrow stream of everything
)

// NewPlan chooses the states and the samples of an export, and reads for that the ids,
// lengths and masks of the dataset. The error says why there is nothing that could be
// written; it is a [*shard.CorruptError] when the dataset is damaged.
func NewPlan(ctx context.Context, ds *shard.Dataset, opt Options) (*Plan, error) {
	p := &Plan{ds: ds, opt: opt}
	var err error
	if p.target, p.choice, err = findTarget(opt.To); err != nil {
		return nil, err
	}
	if err := CheckSplits(opt.Splits); err != nil {
		return nil, err
	}
	if err := p.checkVocabMap(); err != nil {
		return nil, err
	}
	m := ds.Manifest()
	if m.Rows == 0 {
		return nil, errors.New("dataset holds no samples")
	}
	if p.source, err = digestOf(m); err != nil {
		return nil, err
	}
	p.opt.Target = m.Target.Or(opt.Target)
	if err := p.chooseStates(); err != nil {
		return nil, err
	}
	if err := p.scan(ctx, ds); err != nil {
		return nil, err
	}
	p.divide()
	return p, nil
}

// Target describes what is exported to.
func (p *Plan) Target() producer.TargetDescription { return p.target }

// SetReaders says what each tool is to be told, for the mapping beside the data: it
// depends on the layers that the plan chose.
func (p *Plan) SetReaders(r []Reader) { p.readers = r }

// chooseStates decides which states are written, and in which form.
func (p *Plan) chooseStates() error {
	m := p.ds.Manifest()
	l := m.Layout()
	for i := range l.States {
		if s := &l.States[i]; s.Role == format.RoleFinal && p.target.Final != nil {
			if err := p.chooseFinal(s); err != nil {
				return err
			}
		}
	}
	var err error
	if p.Layers, err = producer.Choose(p.choice, l, m.Origin, producer.EmitOptions{Layers: p.opt.Layers}); err != nil {
		return err
	}
	for _, s := range l.States {
		if s.Role == format.RoleLayer && slices.Contains(p.Layers, s.Layer) || s.Role == format.RoleFinal && p.target.Final != nil {
			p.states = append(p.states, s)
			p.tokenBytes += int64(l.HiddenSize * s.DType.Size())
		}
	}
	if final := p.final(); p.opt.Final != format.NormUnknown && final == nil {
		return fmt.Errorf("final cannot be written %s the norm: there is none", sides(p.opt.Final))
	}
	return nil
}

// chooseFinal decides on the norm state of the final, and makes s say what it will be.
// What cannot be had is left as it is, for the target to refuse.
func (p *Plan) chooseFinal(s *format.State) error {
	have, want := s.Norm, p.opt.Final
	switch {
	case want == format.NormUnknown && slices.Contains(p.target.Final, have):
		want = have
	case want == format.NormUnknown:
		want = p.target.Final[0]
	case !slices.Contains(p.target.Final, want):
		return fmt.Errorf("%s does not take a final %s the norm", p.target.Name, sides(want))
	case have == format.NormUnknown:
		return errors.New("final is of unknown norm state: ingest again and say which it is (--final)")
	case have == format.NormPost && want == format.NormPre:
		return errors.New("final is after the norm and cannot be written before it: nothing undoes the norm, the RMS of each row is lost")
	}
	if have == format.NormPre && want == format.NormPost {
		if err := p.readNorm(); err != nil {
			return err
		}
		s.Norm = format.NormPost
	}
	p.Final = s.Norm
	return nil
}

func (p *Plan) readNorm() (err error) {
	if p.opt.Norm == nil {
		return fmt.Errorf("final is before the norm, and %s wants it after: that needs the weight of the final norm (--target)", p.target.Name)
	}
	if p.norm, err = p.opt.Norm(); err != nil {
		return err
	}
	if n, h := p.norm.Width(), p.ds.Manifest().HiddenSize; n != h {
		return fmt.Errorf("final norm of the target has %d weights, want %d, the hidden size of the dataset", n, h)
	}
	p.Normed = p.norm.String()
	return nil
}

// sides says on which side of the norm a state lies.
func sides(n format.Norm) string {
	if n == format.NormPre {
		return "before"
	}
	return "after"
}

// final is the final state as it is written, nil when there is none.
func (p *Plan) final() *format.State {
	if n := len(p.states); n > 0 && p.states[n-1].Role == format.RoleFinal {
		return &p.states[n-1]
	}
	return nil
}

// divide gives each sample its split, its number and its file.
func (p *Plan) divide() {
	splits := p.opt.Splits
	parts := make([][]*row, max(1, len(splits)))
	for _, r := range p.rows {
		i := splitOf(splits, r.digest)
		parts[i] = append(parts[i], r)
	}
	for i, rows := range parts {
		c := SplitCount{Samples: len(rows)}
		if len(splits) > 0 {
			c.Name = splits[i].Name
		}
		for n, r := range rows {
			c.Tokens += int64(r.tokens)
			if p.target.Name != datasets {
				p.units = append(p.units, &unit{name: path.Join(c.Name, sampleFile(p.target, n, r.id)), rows: []*row{r}})
			}
		}
		p.Splits = append(p.Splits, c)
		p.Samples += c.Samples
		p.Tokens += c.Tokens
	}
	p.Bytes = p.Tokens * p.tokenBytes
	// The data is read from its beginning to its end, whatever its numbers are.
	slices.SortFunc(p.units, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.rows[0].shard, b.rows[0].shard), cmp.Compare(a.rows[0].row, b.rows[0].row))
	})
	switch {
	case p.target.Name == datasets:
		p.streams(parts, stateRows, p.tokenBytes)
	case p.target.Dataset:
		p.streams(parts, tokenRows, 16)
	}
}

// streams adds the Arrow files of each split. A split without samples has one too.
func (p *Plan) streams(parts [][]*row, what stream, tokenBytes int64) {
	for i, rows := range parts {
		files := cut(rows, tokenBytes)
		for k, part := range files {
			p.units = append(p.units, &unit{name: path.Join(p.Splits[i].Name, arrowFile(k, len(files))), rows: part, stream: what})
		}
	}
}

// cut divides rows, in their order, into files of at most 500 MB, as datasets does. A row
// that is longer has a file of its own.
func cut(rows []*row, tokenBytes int64) [][]*row {
	const most = 500e6
	files := [][]*row{nil}
	size := int64(0)
	for _, r := range rows {
		n := int64(r.tokens) * tokenBytes
		if size > 0 && size+n > most {
			files, size = append(files, nil), 0
		}
		last := len(files) - 1
		files[last] = append(files[last], r)
		size += n
	}
	return files
}
