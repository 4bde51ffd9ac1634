package validate

import "hsx/format"

// vocabulary compares head, map and config: three that have a say in how many tokens
// the draft names. Of three, the odd one out is to blame.
func (k *draftCheck) vocabulary() {
	config := int64(k.cfg.DraftVocab())
	rows, cols, head := k.cp.matrix("lm_head.weight")
	d2t, hasD2T, errD := k.cp.vector("d2t")
	t2d, hasT2D, errT := k.cp.vector("t2d")
	size, named := int64(d2t.N), hasD2T && errD == nil
	const export = "export the draft again, with the map that it was trained with"
	for _, err := range []error{errD, errT} {
		if err != nil {
			k.add(ruleMapShape, Error, export, "%s", err)
		}
	}
	switch {
	case head && config > 0 && rows != config && named && rows == size:
		k.add(ruleDraftVocabSize, Error, "write the number of rows of lm_head.weight", "draft_vocab_size is %d, want %d, as lm_head.weight and d2t have", config, rows)
	case head && config > 0 && rows != config && (!named || size == config):
		k.add(ruleHeadShape, Error, export, "lm_head.weight has %d rows, want %d, the draft's vocabulary", rows, config)
	case head && config > 0 && named && (rows != config || size != config):
		what := ruleDraftVocabSize
		if rows == config {
			what = ruleMapShape
		}
		k.add(what, Error, export, "draft_vocab_size is %d, lm_head.weight has %d rows and d2t %d entries, want all equal", config, rows, size)
	case head && config == 0 && named && rows != size:
		k.add(ruleHeadShape, Error, export, "lm_head.weight has %d rows, want %d, as d2t has", rows, size)
	case !head && named && config > 0 && size != config:
		k.add(ruleMapShape, Error, export, "d2t has %d entries, want %d, the draft's vocabulary", size, config)
	}
	if head && k.width > 0 && cols != k.width {
		k.add(ruleHeadShape, Error, "check hidden_size", "lm_head.weight takes %d values, want %d, the draft's hidden size", cols, k.width)
	}
	if hasT2D && errT == nil && k.vocab > 0 && int64(t2d.N) != k.vocab {
		k.add(ruleMapShape, Error, export, "t2d has %d entries, want %d, the target's vocabulary", t2d.N, k.vocab)
		return
	}
	switch draft := firstPositive(size, rows, config); {
	case !hasD2T && draft > 0 && draft < k.vocab:
		k.add(ruleMapMissing, Error, export, "the draft has %d tokens of the target's %d and no d2t to say which, so servers take the first %d", draft, k.vocab, draft)
	case named:
		k.maps(d2t, t2d, hasT2D && errT == nil)
	}
}

func firstPositive(of ...int64) int64 {
	for _, n := range of {
		if n > 0 {
			return n
		}
	}
	return 0
}

// maps looks into d2t, whose entry i is the target's token less i, and t2d, which marks
// the target's tokens. A map that was never filled is told as that alone.
func (k *draftCheck) maps(d2t, t2d format.Ints, both bool) {
	part := int64(d2t.N) < k.vocab
	marked := 0
	if both {
		marked = vectorNonzero(t2d)
	}
	unfilled := false
	if both && part && marked == t2d.N && t2d.N > 0 {
		unfilled = true
		k.add(ruleT2DUnfilled, Error, "build the vocabulary map, and train with it", "t2d marks all %d tokens of the target, want %d, so it was never filled", marked, d2t.N)
	}
	// The first tokens of the target in their order have offsets of 0 too; only t2d can
	// tell that this is meant.
	prefix := both && marked == d2t.N && vectorPrefix(t2d, d2t.N)
	if part && d2t.N > 1 && vectorNonzero(d2t) == 0 && !prefix {
		unfilled = true
		k.add(ruleD2TUnfilled, Error, "build the vocabulary map, and train with it", "all %d entries of d2t are 0, which names the first %d tokens of the target, so it was never filled", d2t.N, d2t.N)
	}
	if unfilled || both && k.disagree(d2t, t2d, marked) {
		return
	}
	k.mapRange(d2t)
	k.coverage(d2t)
}

// vectorPrefix reports whether none of the first n elements is 0.
func vectorPrefix(v format.Ints, n int) bool {
	for i := range min(n, v.N) {
		if v.At(i) == 0 {
			return false
		}
	}
	return true
}

// disagree walks through the tokens that t2d marks, which d2t must name in that order.
func (k *draftCheck) disagree(d2t, t2d format.Ints, marked int) bool {
	const do = "export both from one vocabulary map"
	if marked != d2t.N {
		k.add(ruleMapDisagree, Error, do, "t2d marks %d tokens of the target, want %d, as d2t has", marked, d2t.N)
		return true
	}
	var absolute, differ, at int
	var seen, want int64
	i := 0
	for token := range t2d.N {
		if t2d.At(token) == 0 {
			continue
		}
		if d2t.At(i) == int64(token) {
			absolute++
		}
		if got := d2t.At(i) + int64(i); got != int64(token) {
			if differ++; differ == 1 {
				at, seen, want = i, got, int64(token)
			}
		}
		i++
	}
	switch {
	case differ == 0:
		return false
	case absolute == d2t.N:
		k.add(ruleMapDisagree, Error, "subtract its index from each entry of d2t", "d2t holds the target's ids themselves, want their offsets: entry %d is %d, want %d", at, d2t.At(at), want-int64(at))
	default:
		k.add(ruleMapDisagree, Error, do, "d2t and t2d differ in %d of %d tokens: draft token %d is %d by d2t and %d by t2d", differ, d2t.N, at, seen, want)
	}
	return true
}

// mapRange looks for tokens that the target has not, and for those named twice.
func (k *draftCheck) mapRange(d2t format.Ints) {
	if k.vocab <= 0 {
		return
	}
	outside, first := 0, -1
	rising, twice := true, -1
	last := int64(-1)
	for i := range d2t.N {
		token := d2t.At(i) + int64(i)
		if token < 0 || token >= k.vocab {
			if outside++; first < 0 {
				first = i
			}
		}
		if token == last && twice < 0 {
			twice = i
		}
		rising, last = rising && token > last, token
	}
	switch {
	case outside > 0:
		k.add(ruleD2TRange, Error, "d2t holds offsets: the target's id less the index", "%d of %d entries of d2t lead outside of the target's %d tokens, first entry %d to %d", outside, d2t.N, k.vocab, first, d2t.At(first)+int64(first))
	case twice >= 0:
		k.add(ruleD2TRange, Error, "build the vocabulary map again", "entries %d and %d of d2t both lead to token %d", twice-1, twice, d2t.At(twice)+int64(twice))
	case !rising:
		k.add(ruleD2TRange, Warning, "see how the map was built", "the tokens that d2t leads to do not rise, and maps are built from sorted tokens")
	}
}

// The shares of supervised tokens below which a vocabulary is poor, and useless.
const (
	poorCoverage    = 0.95
	uselessCoverage = 0.80
)

// coverage weighs the draft's tokens by how often the data has them.
func (k *draftCheck) coverage(d2t format.Ints) {
	var all, have int64
	for _, n := range k.in.Supervised {
		all += n
	}
	if all <= 0 {
		return
	}
	for i := range d2t.N {
		if token := d2t.At(i) + int64(i); token >= 0 && token < int64(len(k.in.Supervised)) {
			have += k.in.Supervised[token]
		}
	}
	share, severity := float64(have)/float64(all), Warning
	if share < uselessCoverage {
		severity = Error
	}
	if share < poorCoverage {
		k.add(ruleCoverage, severity, "build the vocabulary map from this data", "the draft's %d tokens are %.1f %% of the %d supervised ones, want %.0f %%", d2t.N, 100*share, all, 100*poorCoverage)
	}
}
