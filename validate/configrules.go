package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// The names of the config's rules.
const (
	ruleLayersDiffer     = "layers-differ"
	ruleLayersUnknown    = "layers-unknown"
	ruleIDsOrder         = "ids-not-increasing"
	ruleIDsDuplicate     = "ids-duplicate"
	ruleIDsNegative      = "ids-negative"
	ruleIDsRange         = "ids-out-of-range"
	ruleIDsEmpty         = "ids-empty"
	ruleIDsCount         = "ids-count"
	ruleIDsAbsent        = "ids-absent"
	ruleDefault          = "default-degenerate"
	rulePlaces           = "places-disagree"
	ruleOtherDefault     = "other-convention-default"
	ruleVersions         = "server-versions-differ"
	ruleServer           = "server-differs"
	ruleServerIgnores    = "server-ignores-ids"
	ruleLastLayer        = "last-layer-unservable"
	ruleAuxOff           = "aux-states-off"
	ruleTargetWidth      = "target-width-differs"
	ruleTargetVocab      = "target-vocab-differs"
	ruleTargetDepth      = "target-depth-differs"
	ruleDraftVocabRange  = "draft-vocab-range"
	ruleFinalNormDiffers = "final-norm-differs"
)

func configRules() []Rule {
	const needs, cost = "config", "config.json and the manifest"
	return []Rule{
		{ruleLayersDiffer, "the data, --layers and the draft's config name the same layers in the same order", cost, needs, Error},
		{ruleLayersUnknown, "the dataset knows which layers it holds", "the manifest", "data", Warning},
		{ruleIDsOrder, "every list of ids increases, as engines concatenate whatever it says", cost, needs, Error},
		{ruleIDsDuplicate, "no id is listed twice, of which an engine captures one", cost, needs, Error},
		{ruleIDsNegative, "no id is negative, which is the embedding, the last layer or nothing, by tool", cost, needs, Error},
		{ruleIDsRange, "every id names a layer that the target has", cost, needs, Error},
		{ruleIDsEmpty, "no list is empty, which some tools take for absent", cost, needs, Error},
		{ruleIDsCount, "there are as many ids as blocks in the data and in fc.weight", cost, needs, Error},
		{ruleIDsAbsent, "the layers of the draft are known, from its ids or the tools' default", cost, needs, Error},
		{ruleDefault, "without ids, the default for the target's depth names three layers", cost, needs, Error},
		{rulePlaces, "lists in several places name the same layers", cost, needs, Error},
		{ruleOtherDefault, "no list equals the default of the other convention, the mark of ids read one layer off", cost, needs, Warning},
		{ruleVersions, "all versions of SGLang read the list alike for this family of targets", cost, needs, Warning},
		{ruleServer, "the chosen server feeds the draft the layers that the data holds", cost, needs, Error},
		{ruleServerIgnores, "the chosen server reads the place where the ids stand", cost, needs, Error},
		{ruleLastLayer, "no id names the last layer, which SGLang never captures", cost, needs, Warning},
		{ruleAuxOff, "a draft that is to read the final state alone has no layers to read", cost, needs, Warning},
		{ruleTargetWidth, "the draft's config has the target's hidden size", cost, needs, Error},
		{ruleTargetVocab, "the draft's config has the target's vocabulary", cost, needs, Warning},
		{ruleTargetDepth, "num_target_layers is the target's depth, or the number of ids", cost, needs, Warning},
		{ruleDraftVocabRange, "draft_vocab_size lies between 1 and the target's vocabulary", cost, needs, Error},
		{ruleFinalNormDiffers, "the data's final state has the norm that the config's trainers expect", cost, needs, Info},
	}
}

// CheckConfig reports what is wrong with the lists of layers that the input names: each
// by itself, and against one another.
func CheckConfig(in ConfigInput, out *Collector) {
	k := &configCheck{in: in, res: NewResolution(in), out: out}
	k.wanted()
	if in.Config == nil {
		return
	}
	k.sizes()
	if in.Config.noAux() {
		k.auxOff()
		return
	}
	sound := len(in.Config.Lists) > 0
	for _, l := range in.Config.Lists {
		sound = k.list(l) && sound
	}
	if len(in.Config.Lists) == 0 {
		k.absent()
	}
	if sound {
		k.places()
		k.compare(in.Config.Lists[0])
		k.otherDefault()
		k.versions()
	}
	k.server()
	k.finalNorm()
}

type configCheck struct {
	in  ConfigInput
	res *Resolution
	out *Collector
}

func (k *configCheck) add(rule string, severity Severity, do, message string, args ...any) {
	k.out.Add(Finding{Rule: rule, Severity: severity, Token: -1, Message: fmt.Sprintf(message, args...), Do: do})
}

// checkLayersKnown reports a dataset whose layers nobody named: whatever is trained on
// it, nothing can say that the server will feed the same.
func checkLayersKnown(l format.Layout, out *Collector) {
	n := 0
	for _, s := range l.States {
		if s.Role == format.RoleBlock {
			n++
		}
	}
	if n > 0 {
		out.Add(Finding{
			Rule: ruleLayersUnknown, Severity: Warning, Token: -1, Do: "ingest again with --layers",
			Message: fmt.Sprintf("the dataset holds %d blocks of unknown layers, so nothing can be compared with them", n),
		})
	}
}

// wanted compares --layers with the data.
func (k *configCheck) wanted() {
	layers, blocks := k.in.Wanted, k.res.blocks
	if layers == nil {
		return
	}
	if err := layers.Check(k.in.Target.Layers); err != nil {
		k.add(ruleIDsRange, Error, "give layers that the target has", "--layers: %s", err)
		return
	}
	if k.res.Against == "data" && !blocks.holds(layers, k.in.Target.Layers) {
		k.add(ruleLayersDiffer, Error, "capture again with these layers, or give the data's: post "+format.Layers(blocks.layers).IDs(format.PostLayer),
			"%s", k.res.diff("--layers wants", layers))
	}
	if k.in.Config == nil && k.equalsOther(idsOf(layers, k.in.Convention), k.in.Convention) {
		k.add(ruleOtherDefault, Info, "make sure that the dump's hooks counted so", "--layers %s, read as %s, is also the %s default for %d layers, which is %s",
			layers.IDs(k.in.Convention), k.in.Convention, other(k.in.Convention), k.in.Target.Layers, layerText(defaultLayers(k.in.Target.Layers)))
	}
}

// compare holds a sound list of the config against the data or --layers.
func (k *configCheck) compare(l IDList) {
	if k.res.Against == "config" || k.res.ref == nil || k.res.agrees(l.Layers()) || !k.countFits(l) {
		return
	}
	want := idText(idsOf(k.res.ref, l.Convention))
	k.add(ruleLayersDiffer, Error, "write "+l.Key+": "+want+", or capture the layers that it names", "%s (%s)", k.res.diff("the config wants", l.Layers()), l)
}

// places compares the lists with the first.
func (k *configCheck) places() {
	a := k.in.Config.Lists[0]
	for _, b := range k.in.Config.Lists[1:] {
		if !slices.Equal(a.Layers(), b.Layers()) {
			k.add(rulePlaces, Error, "write "+b.Key+": "+idText(idsOf(a.Layers(), b.Convention))+", or keep one of them",
				"%s is %s (%s), %s is %s (%s)", a, layerText(a.Layers()), a.Convention, b, layerText(b.Layers()), b.Convention)
		}
	}
}

// absent looks at the default that stands in for ids.
func (k *configCheck) absent() {
	n := k.in.Target.Layers
	switch layers := defaultLayers(n); {
	case k.in.Config.DFlash():
		k.add(ruleIDsAbsent, Error, "write "+keyDFlash, "the config names no layers, and a DFlash draft has no default")
	case n <= 0:
		k.add(ruleIDsAbsent, Warning, "give the target's config, or write the ids", "the config names no layers, and their default depends on the target's depth, which is unknown")
	case layers[0] >= layers[1] || layers[1] >= layers[2]:
		k.add(ruleDefault, Error, "write the ids that the data holds", "the config names no layers, and the default for %d layers is %s (post 1, L//2-1, L-4)", n, layerText(layers))
	case k.res.Against != "" && !k.res.agrees(layers):
		k.add(ruleLayersDiffer, Error, "write "+keyNested+": "+idText(idsOf(k.res.ref, format.PostLayer))+", and what the table says for the server",
			"%s (it names no layers, and the default for %d layers is %s)", k.res.diff("the config wants", layers), n, layerText(layers))
	}
}

func other(c format.Convention) format.Convention {
	if c == format.PostLayer {
		return format.Boundary
	}
	return format.PostLayer
}

// equalsOther reports whether ids written in c are the default of the other convention.
func (k *configCheck) equalsOther(ids []int, c format.Convention) bool {
	return k.in.Target.Layers > 0 && slices.Equal(ids, idsOf(defaultLayers(k.in.Target.Layers), other(c)))
}

func (k *configCheck) otherDefault() {
	for _, l := range k.in.Config.Lists {
		if !k.equalsOther(l.IDs, l.Convention) {
			continue
		}
		var names []string
		fed := defaultLayers(k.in.Target.Layers)
		for _, s := range k.res.Sides {
			if s.Role == "server" && s.Verdict == "MISMATCH" && slices.Equal(s.Layers, fed) {
				names = append(names, s.Name)
			}
		}
		who := "a server that reads " + other(l.Convention).String() + " ids"
		if names != nil {
			who = strings.Join(names, ", ")
		}
		k.add(ruleOtherDefault, Warning, "write for each server what the table says", "%s, read as %s, is %s, and it is also the %s default for %d layers, so %s would feed %s",
			l, l.Convention, layerText(l.Layers()), other(l.Convention), k.in.Target.Layers, who, layerText(fed))
	}
}

// versions warns of the one family for which a change of SGLang changed what a list
// means.
func (k *configCheck) versions() {
	if k.res.Family != familyDeepSeek || k.in.Server != "" && k.in.Server != "sglang" {
		return
	}
	var a, b *Side
	for i := range k.res.Sides {
		switch s := &k.res.Sides[i]; {
		case s.reader.Engine != "sglang" || s.Key == "":
		case s.reader.Old:
			a = s
		default:
			b = s
		}
	}
	if a != nil && b != nil && !slices.Equal(a.Layers, b.Layers) {
		k.add(ruleVersions, Warning, "find out which version serves, and write what the table says for it", "%s: %s (%s) feeds %s, and %s (%s) feeds %s",
			IDList{Key: a.Key, IDs: a.IDs}, a.Name, a.reader.Versions, layerText(a.Layers), b.Name, b.reader.Versions, layerText(b.Layers))
	}
}

// server looks at what the chosen server makes of the config.
func (k *configCheck) server() {
	for _, s := range k.res.Sides {
		chosen := s.Role == "server" && (k.in.Server == s.Name || k.in.Server == s.reader.Engine && !s.reader.Old)
		if !chosen || k.in.Server == "" {
			continue
		}
		ignored := s.Key == "" && s.reader.Argument == "" && len(k.in.Config.Lists) > 0
		where := strings.Join(append([]string{s.Place + " " + s.Convention.String()}, s.Notes...), "; ")
		switch {
		case ignored && s.Verdict == "ok":
			k.add(ruleServerIgnores, Info, "write the ids where it reads them", "%s does not read %s, and its default happens to name the same layers", s.Name, k.in.Config.Lists[0].Key)
		case ignored && s.Verdict == "MISMATCH":
			k.add(ruleServerIgnores, Error, s.Write, "%s does not read %s, and its default feeds %s", s.Name, k.in.Config.Lists[0].Key, layerText(s.Layers))
		case s.Verdict == "MISMATCH" && s.reader.Argument != "":
			k.add(ruleServer, Warning, s.Write, "%s reads no config, and without %s it feeds %s", s.Name, s.reader.Argument, layerText(s.Layers))
		case s.Verdict == "MISMATCH" && s.Key != "":
			k.add(ruleServer, Error, s.Write, "%s (%s)", k.res.diff(s.Name+" feeds", s.Layers), where)
		}
	}
}
