package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// ConfigInput is what the rules of the config compare.
type ConfigInput struct {
	Wanted     format.Layers     // of --layers, nil when not given
	Convention format.Convention // in which it was given
	Data       format.Layout     // of the dataset, zero when there is none
	Target     format.Target     // from the target's own config; zero fields are unknown
	Family     string            // of the target, one of Families; "" to go by its name
	Server     string            // one of Servers; "" when none is chosen
	Config     *Config           // of the draft, nil when not given
	FCWidth    int               // columns of the checkpoint's fc.weight, 0 when unknown
	Embedding  bool              // P_-1 is meant, so an id -1 is no mistake
}

// Side is one party that has a say in which layers the draft reads.
type Side struct {
	Name       string            `json:"name"` // "config" or a reader's
	Role       string            `json:"role"` // config, trainer or server
	Key        string            `json:"key,omitempty"`
	Place      string            `json:"place"` // of the key, or "default"
	Convention format.Convention `json:"convention"`
	IDs        []int             `json:"ids"`
	Layers     []format.Layer    `json:"layers"`            // k of P_k in the order in which they reach the draft; none when that cannot be said
	Notes      []string          `json:"notes,omitempty"`   // why these
	Verdict    string            `json:"verdict,omitempty"` // ok or MISMATCH, when there is something to compare with
	Write      string            `json:"write,omitempty"`   // what makes a mismatch right
	Fix        *Fix              `json:"-"`                 // the same as data, nil when nothing does
	Source     string            `json:"source,omitempty"`

	reader Reader
}

// Fix is what makes a side read certain layers.
type Fix struct {
	Key      string // of the draft's config, with dots, that is to be written
	Argument string // of the server, in place of a key
	IDs      []int
}

// String is "write KEY: [ids]" or "pass ARGUMENT={ids}".
func (f *Fix) String() string {
	text := idText(f.IDs)
	if f.Argument != "" {
		return "pass " + f.Argument + "={" + text[1:len(text)-1] + "}"
	}
	return "write " + f.Key + ": " + text
}

// family is the given one, or that of the names at hand; "" when they say nothing.
func (in *ConfigInput) family() string {
	if in.Family != "" {
		return in.Family
	}
	family := Family(in.Target.Name)
	if in.Config != nil && family != familyDeepSeek && family != familyGPTOSS {
		// A draft for Kimi often carries its target's model class, and never another's.
		for _, name := range append(slices.Clone(in.Config.Architectures), in.Config.ModelType) {
			if f := Family(name); family == "" && (f == familyDeepSeek || f == familyGPTOSS) {
				return f
			}
		}
	}
	return family
}

// Resolve says what each side makes of a draft's config for a target: each list of the
// config as its writers mean it, then each trainer and server of the family (of every
// family when it is ""). A nil config gives the readers alone, without layers.
func Resolve(c *Config, t format.Target, family string) []Side {
	var sides []Side
	if c != nil {
		for _, l := range c.Lists {
			sides = append(sides, Side{Name: "config", Role: "config", Key: l.Key, Place: l.Place, Convention: l.Convention, IDs: l.IDs, Layers: l.Layers()})
		}
		if len(c.Lists) == 0 {
			s := Side{Name: "config", Role: "config"}
			s.fall(Reader{Top: 1, Fallback: configFallback(c)}, c, t.Layers)
			sides = append(sides, s)
		}
	}
	for _, r := range Readers() {
		if r.Family != "" && family != "" && r.Family != family || c != nil && c.DFlash() && !r.servesDFlash() {
			continue
		}
		sides = append(sides, r.side(c, t.Layers, family))
	}
	return sides
}

func (r *Reader) servesDFlash() bool {
	return slices.ContainsFunc(r.Keys, func(k keyReading) bool { return k.key == keyDFlash || k.key == keySpeculators })
}

func configFallback(c *Config) fallback {
	if c.DFlash() {
		return fallNone
	}
	return fallEagle
}

// side is what the reader makes of a config, for a target of n layers.
func (r Reader) side(c *Config, n int, family string) Side {
	s := Side{Name: r.Name, Role: "server", Place: "-", Source: r.Source, reader: r}
	if r.Trainer {
		s.Role = "trainer"
	}
	if r.Family != "" && family == "" {
		s.Notes = append(s.Notes, "for "+r.Family+" targets")
	}
	if c == nil {
		return s
	}
	for _, k := range r.Keys {
		i := slices.IndexFunc(c.Lists, func(l IDList) bool { return l.Key == k.key })
		if i < 0 {
			continue
		}
		l := c.Lists[i]
		s.Key, s.Place, s.IDs, s.Convention = l.Key, l.Place, l.IDs, k.as.convention(l.IDs)
		var notes []string
		s.Layers, notes = r.feed(l.IDs, s.Convention, n)
		if len(l.IDs) == 0 {
			notes = append(notes, "the list is empty")
		} else if k.as == readByFirst && s.Convention == format.Boundary {
			notes = append(notes, fmt.Sprintf("the first id is %d, not 1, so no +1", l.IDs[0]))
		}
		s.Notes = append(s.Notes, notes...)
		return s
	}
	switch {
	case r.Argument != "":
		s.Notes = append(s.Notes, r.Argument+" not given")
	case len(c.Lists) > 0:
		places := make([]string, len(c.Lists))
		for i, l := range c.Lists {
			places[i] = l.Place
		}
		s.Notes = append(s.Notes, strings.Join(places, ", ")+" not read")
	default:
		s.Notes = append(s.Notes, "no ids in the config")
	}
	if c.DFlash() {
		r.Fallback = fallNone
	}
	s.fall(r, c, n)
	return s
}

// fall fills in what r does without ids.
func (s *Side) fall(r Reader, c *Config, n int) {
	s.Place, s.Convention = "default", r.Default
	switch {
	case c.noAux():
		s.Notes = append(s.Notes, "use_aux_hidden_state is false: the final state alone")
	case r.Fallback == fallNone:
		s.Notes = append(s.Notes, "ids must be given")
	case n <= 0:
		s.Notes = append(s.Notes, "the default needs the target's depth")
	case r.Fallback == fallDeep && n <= 5:
		s.Notes = append(s.Notes, fmt.Sprintf("refuses a target of %d layers without it", n))
	default:
		s.IDs = idsOf(defaultLayers(n), r.Default)
		var notes []string
		s.Layers, notes = r.feed(s.IDs, r.Default, n)
		s.Notes = append(s.Notes, notes...)
	}
}

// mend says what would make the side read want: the first list that, read as it reads,
// does so.
func (s *Side) mend(c *Config, want []format.Layer, n int) {
	if s.Fix = s.fix(c, want, n); s.Fix != nil {
		s.Write = s.Fix.String()
	} else {
		s.Write = "no list makes it read " + layerText(want)
	}
}

func (s *Side) fix(c *Config, want []format.Layer, n int) *Fix {
	r := s.reader
	if r.Argument != "" {
		ids := idsOf(want, format.PostLayer)
		if got, _ := r.feed(ids, format.PostLayer, n); slices.Equal(got, want) {
			return &Fix{Argument: r.Argument, IDs: ids}
		}
	}
	key := s.Key
	if key == "" && len(r.Keys) > 0 {
		key = r.Keys[0].key
		if c != nil && c.DFlash() {
			key = keyDFlash
		}
	}
	for _, k := range r.Keys {
		for _, convention := range []format.Convention{format.PostLayer, format.Boundary} {
			ids := idsOf(want, convention)
			if k.key != key || k.as.convention(ids) != convention {
				continue
			}
			if got, _ := r.feed(ids, convention, n); slices.Equal(got, want) {
				return &Fix{Key: key, IDs: ids}
			}
		}
	}
	return nil
}

// layerText is "P_2 P_30 P_58".
func layerText(layers []format.Layer) string {
	if len(layers) == 0 {
		return "none"
	}
	names := make([]string, len(layers))
	for i, l := range layers {
		names[i] = l.String()
	}
	return strings.Join(names, " ")
}

// dataBlocks are the states of a dataset beside the final one.
type dataBlocks struct {
	layers  []format.Layer // nil when unknown
	n       int
	unknown bool         // the dataset does not know its layers
	final   *format.Norm // nil when it has none
}

func blocksOf(l format.Layout) dataBlocks {
	var d dataBlocks
	for _, s := range l.States {
		switch s.Role {
		case format.RoleFinal:
			d.final = &s.Norm
			continue
		case format.RoleBlock:
			d.unknown = true
		case format.RoleLayer:
			d.layers = append(d.layers, s.Layer)
		}
		d.n++
	}
	if d.unknown {
		d.layers = nil
	}
	return d
}

// holds reports whether the data has exactly these layers for blocks. The last may be
// the final state, where that was taken before the norm.
func (d dataBlocks) holds(layers []format.Layer, n int) bool {
	if last := len(layers) - 1; d.final != nil && *d.final != format.NormPost && last == len(d.layers) && (n == 0 || int(layers[last]) == n-1) {
		return slices.Equal(d.layers, layers[:last])
	}
	return slices.Equal(d.layers, layers)
}

// firstDiff names the first block, counted from 1, in which two lists differ.
func firstDiff(who string, got []format.Layer, other string, want []format.Layer) string {
	for i := range max(len(got), len(want)) {
		a, b := "none", "none"
		if i < len(got) {
			a = got[i].String()
		}
		if i < len(want) {
			b = want[i].String()
		}
		if a != b {
			return fmt.Sprintf("block %d: %s %s, %s %s", i+1, who, a, other, b)
		}
	}
	return ""
}

// Diff says how the layers of a dataset differ from those wanted, "" if they do not.
func Diff(have format.Layout, want format.Layers) string {
	d := blocksOf(have)
	if d.unknown {
		return "the dataset does not know its layers: it was ingested without --layers"
	}
	var parts []string
	for i := range max(len(d.layers), len(want)) {
		switch {
		case i >= len(d.layers):
			parts = append(parts, fmt.Sprintf("block %d is absent, want %s", i, want[i]))
		case i >= len(want):
			parts = append(parts, fmt.Sprintf("block %d is %s, want none", i, d.layers[i]))
		case d.layers[i] != want[i]:
			parts = append(parts, fmt.Sprintf("block %d is %s, want %s", i, d.layers[i], want[i]))
		}
	}
	return strings.Join(parts, "; ")
}
