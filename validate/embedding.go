package validate

import (
	"encoding/json"
	"fmt"
	"slices"

	"hsx/format"
)

const (
	// embeddingIDs is how many token ids have to be repeated before other neighbours,
	// with identical vectors, to prove an embedding. Above the embedding no group of
	// equal tokens was identical in 136 groups, and the median deviation was 0.3.
	embeddingIDs = 3
	// embeddingVocab bounds the table over all samples: the largest vocabularies have
	// 262,144 ids.
	embeddingVocab = 1 << 18
)

// embeddingScan decides by equal tokens which states are an embedding's output: only
// there does the vector depend on the token alone. It looks within each sample, and,
// for samples too short to tell, over all of them together.
//
// An occurrence counts only when the token before it differs from that of another
// occurrence, since in a run of one token all states converge. Row 0 is left out: the
// first token is the same in every sample, and nothing stands before it.
type embeddingScan struct {
	States  []format.State
	Cleared []bool // by state: two equal tokens had different vectors, so it is no embedding
	// Tokens is what is known of each id over all samples. It is empty when every state
	// is cleared, as it is soon in sound data.
	Tokens map[int32]*embeddingToken
	// Reported says of which states a finding was made for a sample by itself.
	Reported []bool

	local map[int32]*embeddingToken
	free  []*embeddingToken
}

// embeddingToken is what the rows of one token id have shown.
type embeddingToken struct {
	First  int      // the first row, within a sample
	Next   int      // a row after another neighbour than the first's, within a sample
	Before int32    // the token before the first
	Varied bool     // there is a row after another token
	Rows   []uint64 // by state: the hash of the first row
	Differ []bool   // by state: there is a row that differs
}

func newEmbeddingScan(l format.Layout) *embeddingScan {
	return &embeddingScan{
		States: l.States, Cleared: make([]bool, len(l.States)), Reported: make([]bool, len(l.States)),
		Tokens: map[int32]*embeddingToken{},
	}
}

// UnmarshalJSON reads what was stored of a scan and refuses what does not fit together.
func (e *embeddingScan) UnmarshalJSON(data []byte) error {
	type plain embeddingScan
	if err := json.Unmarshal(data, (*plain)(e)); err != nil {
		return err
	}
	n := len(e.States)
	if len(e.Cleared) != n || len(e.Reported) != n || e.Tokens == nil {
		return fmt.Errorf("%s has %d and %d marks for %d states", ruleEmbedding, len(e.Cleared), len(e.Reported), n)
	}
	for id, k := range e.Tokens {
		if k == nil || len(k.Rows) != n || len(k.Differ) != n {
			return fmt.Errorf("token %d of %s does not describe %d states", id, ruleEmbedding, n)
		}
	}
	return nil
}

func isEmbedding(s format.State) bool {
	return s.Role == format.RoleLayer && s.Layer == format.Embedding
}

func (e *embeddingScan) sample(f *sampleFacts, out *Collector) {
	if !crossWhole(f) || len(f.States) != len(e.States) || !out.Enabled(ruleEmbedding) {
		return
	}
	e.gather(f)
	for i, s := range e.States {
		if e.judge(s, i, f, out) {
			e.Reported[i] = true
		}
	}
	e.collect()
}

// gather groups the rows of one sample by token.
func (e *embeddingScan) gather(f *sampleFacts) {
	if e.local == nil {
		e.local = map[int32]*embeddingToken{}
	}
	for _, v := range e.local {
		e.free = append(e.free, v)
	}
	clear(e.local)
	for t := 1; t < len(f.Sample.Tokens); t++ {
		id, _ := tokenOf(f.Sample, t)
		before, known := tokenOf(f.Sample, t-1)
		if !known || id < 0 || id >= embeddingVocab {
			continue
		}
		k := e.local[id]
		if k == nil {
			k = e.token(f, t)
			k.Before = before
			e.local[id] = k
			continue
		}
		if before != k.Before && !k.Varied {
			k.Varied, k.Next = true, t
		}
		for i, rows := range f.States {
			if rows[t].Hash != k.Rows[i] {
				k.Differ[i] = true
			}
		}
	}
}

// token is an entry for the first row of an id.
func (e *embeddingScan) token(f *sampleFacts, t int) *embeddingToken {
	var k *embeddingToken
	if n := len(e.free); n > 0 {
		k, e.free = e.free[n-1], e.free[:n-1]
		clear(k.Differ)
		k.Varied, k.Next = false, 0
	} else {
		k = &embeddingToken{Rows: make([]uint64, len(f.States)), Differ: make([]bool, len(f.States))}
	}
	k.First = t
	for i, rows := range f.States {
		k.Rows[i] = rows[t].Hash
	}
	return k
}

// embeddingCount is what the tokens of a table say of one state.
type embeddingCount struct {
	same, differ, vectors int // ids with identical rows, ids without, distinct rows of the former
	example               int32
	place                 *embeddingToken
}

// countEmbedding looks at the ids that stand after different tokens.
func countEmbedding(tokens map[int32]*embeddingToken, state int) embeddingCount {
	var c embeddingCount
	seen := map[uint64]bool{}
	for _, k := range tokens {
		if !k.Varied {
			continue
		}
		if k.Differ[state] {
			c.differ++
		} else {
			c.same++
			seen[k.Rows[state]] = true
		}
	}
	c.vectors = len(seen)
	// The example is the earliest of its kind, so that it does not depend on the order
	// of the map.
	differ := c.differ > c.same
	for id, k := range tokens {
		if k.Varied && k.Differ[state] == differ &&
			(c.place == nil || k.First < c.place.First || k.First == c.place.First && id < c.example) {
			c.example, c.place = id, k
		}
	}
	return c
}

// embedding reports whether the ids prove an embedding: identical vectors for equal
// tokens, different ones for different tokens (a state stuck at one vector is another
// fault). One id in twenty may differ: placeholders of images do.
func (c embeddingCount) embedding() bool {
	return c.same >= embeddingIDs && c.differ*20 <= c.same && c.vectors*2 > c.same
}

// other reports whether the ids prove that it is none.
func (c embeddingCount) other() bool { return c.differ >= embeddingIDs && c.differ > c.same }

// judge reports what one sample shows of state i.
func (e *embeddingScan) judge(s format.State, i int, f *sampleFacts, out *Collector) bool {
	declared := isEmbedding(s)
	if len(e.local) < embeddingIDs || e.Cleared[i] && !declared && !e.suspect(i) {
		return false
	}
	c := countEmbedding(e.local, i)
	switch {
	case !declared && c.embedding():
		out.Add(capturedFinding(s, f.Sample.ID, c, c.place.Next,
			fmt.Sprintf("at tokens %d and %d", c.place.First, c.place.Next)))
	case declared && c.other():
		odd := e.odd(f, i, c)
		out.Add(notEmbeddingFinding(s, f.Sample.ID, c, odd, fmt.Sprintf("at tokens %d and %d", c.place.First, odd)))
	default:
		return false
	}
	return true
}

// odd is the first row of the example whose vector differs from the first one's.
func (e *embeddingScan) odd(f *sampleFacts, state int, c embeddingCount) int {
	for t := c.place.First + 1; t < len(f.Sample.Tokens); t++ {
		if id, _ := tokenOf(f.Sample, t); id == c.example && f.States[state][t].Hash != c.place.Rows[state] {
			return t
		}
	}
	return c.place.Next
}

// suspect reports whether this sample has an id with identical rows in state i: most
// samples of sound data have none, and are done.
func (e *embeddingScan) suspect(i int) bool {
	for _, k := range e.local {
		if k.Varied && !k.Differ[i] {
			return true
		}
	}
	return false
}

func capturedFinding(s format.State, sample string, c embeddingCount, token int, where string) Finding {
	return Finding{
		Rule: ruleEmbedding, Severity: Error, Sample: sample, Column: s.Column(), Token: token,
		Message: fmt.Sprintf("%s holds the embedding output P_-1, not %s: %d of %d repeated token ids have bit-identical vectors whatever stands before them (id %d %s), above the embedding none has",
			s.Column(), stateName(s), c.same, c.same+c.differ, c.example, where),
		Do: "capture again with the layer that is wanted: id 0 of a boundary list and id -1 of a post list both name the embedding",
	}
}

func notEmbeddingFinding(s format.State, sample string, c embeddingCount, token int, where string) Finding {
	return Finding{
		Rule: ruleEmbedding, Severity: Error, Sample: sample, Column: s.Column(), Token: token,
		Message: fmt.Sprintf("%s is declared the embedding output P_-1 and is not: %d of %d repeated token ids have different vectors (id %d %s), an embedding gives equal tokens identical ones",
			s.Column(), c.differ, c.same+c.differ, c.example, where),
		Do: "name the layer that was captured: a post list read as boundary turns P_0 into P_-1",
	}
}

// stateName is a state's name without its type: P_2, block 0, the final.
func stateName(s format.State) string {
	switch s.Role {
	case format.RoleFinal:
		return "the final"
	case format.RoleBlock:
		return fmt.Sprintf("block %d", s.Block)
	}
	return s.Layer.String()
}

// collect adds the sample's tokens to the table of all samples, and drops the table
// when no state can be an embedding any more.
func (e *embeddingScan) collect() { e.merge(e.local, true) }

// merge adds later tokens to the table, in memory of their own if copied.
func (e *embeddingScan) merge(later map[int32]*embeddingToken, copied bool) {
	for _, k := range later {
		for i, d := range k.Differ {
			e.Cleared[i] = e.Cleared[i] || d
		}
	}
	if !e.open() {
		clear(e.Tokens)
		return
	}
	for id, l := range later {
		k := e.Tokens[id]
		if k == nil {
			if copied {
				c := *l
				c.First, c.Next = 0, 0
				c.Rows, c.Differ = slices.Clone(l.Rows), slices.Clone(l.Differ)
				l = &c
			}
			e.Tokens[id] = l
			continue
		}
		k.Varied = k.Varied || l.Varied || k.Before != l.Before
		for i := range k.Rows {
			k.Differ[i] = k.Differ[i] || l.Differ[i] || k.Rows[i] != l.Rows[i]
			e.Cleared[i] = e.Cleared[i] || k.Differ[i]
		}
	}
	if !e.open() {
		clear(e.Tokens)
	}
}

// open reports whether a state may still be an embedding, or is declared one.
func (e *embeddingScan) open() bool {
	for i, s := range e.States {
		if !e.Cleared[i] || isEmbedding(s) {
			return true
		}
	}
	return false
}

func (e *embeddingScan) add(later scan) {
	l, ok := later.(*embeddingScan)
	if !ok || len(l.States) != len(e.States) {
		return
	}
	for i := range e.States {
		e.Cleared[i] = e.Cleared[i] || l.Cleared[i]
		e.Reported[i] = e.Reported[i] || l.Reported[i]
	}
	e.merge(l.Tokens, false)
}

// finish reports what the samples only show together.
func (e *embeddingScan) finish(_ opener, out *Collector) {
	for i, s := range e.States {
		if e.Reported[i] || !out.Enabled(ruleEmbedding) {
			continue
		}
		c := countEmbedding(e.Tokens, i)
		switch {
		case !isEmbedding(s) && !e.Cleared[i] && c.embedding():
			out.Add(capturedFinding(s, "", c, -1, "in several samples"))
		case isEmbedding(s) && c.other():
			out.Add(notEmbeddingFinding(s, "", c, -1, "in several samples"))
		}
	}
}
