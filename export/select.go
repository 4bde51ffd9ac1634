package export

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"hsx/shard"
)

// row is one sample that is to be written.
type row struct {
	shard, row int
	id         string
	tokens     int
	digest     shard.Digest
}

// matches reports whether an id is of a pattern. An id is no path: * matches slashes too.
func matches(pattern, id string) (bool, error) {
	if pattern == "" {
		return true, nil
	}
	flat := strings.NewReplacer("/", "\x00")
	return path.Match(flat.Replace(pattern), flat.Replace(id))
}

// scan reads what of each sample decides whether it is exported: a few bytes a token, no
// states.
func (p *Plan) scan(ctx context.Context, ds *shard.Dataset) error {
	for i := range ds.Manifest().Shards {
		if err := p.scanShard(ctx, ds, i); err != nil {
			return err
		}
	}
	switch {
	case len(p.rows) > 0:
	case p.Refused > 0:
		return fmt.Errorf("none of %d samples can be exported: the last, %q: %s", p.Refused, p.lastRefusal.ID, p.lastRefusal.Reason)
	default:
		return fmt.Errorf("none of %d samples is selected", ds.Manifest().Rows)
	}
	if p.opt.Shuffle {
		slices.SortStableFunc(p.rows, func(a, b *row) int {
			return cmp.Compare(xxh3.HashSeed(a.digest[:], p.opt.Seed), xxh3.HashSeed(b.digest[:], p.opt.Seed))
		})
	}
	if n := p.opt.Limit; n > 0 && n < len(p.rows) {
		p.LeftOut += len(p.rows) - n
		p.rows = p.rows[:n]
	}
	return nil
}

func (p *Plan) scanShard(ctx context.Context, ds *shard.Dataset, i int) (err error) {
	s, err := ds.Shard(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for k := range s.Rows() {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := s.Head(k)
		if err != nil {
			return err
		}
		if err := p.consider(i, k, h); err != nil {
			return err
		}
	}
	return nil
}

// consider takes a sample, leaves it out, or refuses it.
func (p *Plan) consider(i, k int, h shard.Head) error {
	n := len(h.Tokens)
	ok, err := matches(p.opt.Select, h.ID)
	if err != nil {
		return fmt.Errorf("select %q: %w", p.opt.Select, err)
	}
	if !ok || n < p.opt.MinTokens || p.opt.MaxTokens > 0 && n > p.opt.MaxTokens {
		p.LeftOut++
		return nil
	}
	if why := p.target.Lacks(h.LossMask); why != "" {
		p.Refused++
		p.lastRefusal = Refusal{h.ID, "loss_mask " + why}
		if p.opt.Refused != nil {
			p.opt.Refused(p.lastRefusal)
		}
		return nil
	}
	p.rows = append(p.rows, &row{shard: i, row: k, id: h.ID, tokens: n, digest: h.Digest})
	return nil
}

// Split is a share of the samples, and the directory that it goes to.
type Split struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"` // above 0; all shares together are 1
}

// CheckSplits reports shares that do not add up to 1, and names that are not plain. Nil is
// one share without a name.
func CheckSplits(splits []Split) error {
	if splits == nil {
		return nil
	}
	sum, seen := 0.0, map[string]bool{}
	for _, s := range splits {
		plain := s.Name != "" && len(s.Name) <= 100
		for i := range len(s.Name) {
			plain = plain && isPlain(s.Name[i]) && s.Name[i] != '.'
		}
		switch {
		case !plain:
			return fmt.Errorf("split %q has no plain name, want letters, digits, - and _", s.Name)
		case seen[s.Name]:
			return fmt.Errorf("split %q is there twice", s.Name)
		case !(s.Share > 0 && s.Share <= 1):
			return fmt.Errorf("split %q has the share %g, want one above 0 and at most 1", s.Name, s.Share)
		}
		seen[s.Name] = true
		sum += s.Share
	}
	const slack = 1e-9 // of adding decimal fractions
	if sum < 1-slack || sum > 1+slack {
		return fmt.Errorf("splits have the shares %g in all, want 1", sum)
	}
	return nil
}

// splitOf is the split of a sample. Its digest alone decides, so that no sample moves
// when a dataset grows, and repeated samples stay together.
func splitOf(splits []Split, d shard.Digest) int {
	const whole = 1 << 64
	at, end := float64(binary.BigEndian.Uint64(d[:8]))/whole, 0.0
	for i, s := range splits {
		if end += s.Share; at < end {
			return i
		}
	}
	return max(0, len(splits)-1)
}
