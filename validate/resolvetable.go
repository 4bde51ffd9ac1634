package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// Resolution is every side's list of layers, compared with the data's; with those
// wanted when there is no data that knows its layers; and with the config's own when
// nothing else is known.
type Resolution struct {
	Wanted     []format.Layer    `json:"wanted,omitempty"`
	Convention format.Convention `json:"convention"`
	Data       []format.Layer    `json:"data,omitempty"` // none when the dataset does not know, or there is none
	Final      string            `json:"final,omitempty"`
	Against    string            `json:"against,omitempty"` // whose list the verdicts compare with: data, --layers or config
	Depth      int               `json:"target_layers,omitempty"`
	Family     string            `json:"family,omitempty"`
	Sides      []Side            `json:"sides"`

	in     ConfigInput
	blocks dataBlocks
	ref    []format.Layer
}

// NewResolution resolves all sides and compares them.
func NewResolution(in ConfigInput) *Resolution {
	r := &Resolution{
		Wanted: in.Wanted, Convention: in.Convention, Depth: in.Target.Layers, Family: in.family(),
		in: in, blocks: blocksOf(in.Data),
	}
	r.Data = r.blocks.layers
	if r.blocks.final != nil {
		r.Final = r.blocks.final.String()
	}
	switch {
	case len(r.Data) > 0:
		r.ref, r.Against = r.Data, "data"
	case len(r.Wanted) > 0:
		r.ref, r.Against = r.Wanted, "--layers"
	case in.Config != nil && len(in.Config.Lists) > 0:
		if l := in.Config.Lists[0]; len(l.IDs) > 0 {
			r.ref, r.Against = l.Layers(), "config"
		}
	}
	r.Sides = Resolve(in.Config, in.Target, r.Family)
	for i := range r.Sides {
		r.compare(&r.Sides[i])
	}
	return r
}

// agrees reports whether layers are those that are compared with.
func (r *Resolution) agrees(layers []format.Layer) bool {
	return slices.Equal(layers, r.ref) || r.Against == "data" && r.blocks.holds(layers, r.Depth)
}

func (r *Resolution) compare(s *Side) {
	if r.ref == nil || s.Role == "config" && r.Against == "config" && s.Key == r.in.Config.Lists[0].Key {
		return
	}
	if r.in.Config == nil {
		s.mend(nil, r.ref, r.Depth)
		return
	}
	switch {
	case r.in.Config.noAux() && s.Key == "", s.Layers == nil && s.Place == "default" && r.Depth == 0:
		return // nothing to compare
	case r.agrees(s.Layers):
		s.Verdict = "ok"
	default:
		s.Verdict = "MISMATCH"
		if s.Role == "config" {
			s.Notes = append(s.Notes, r.diff("the config wants", s.Layers))
		} else {
			s.mend(r.in.Config, r.ref, r.Depth)
		}
	}
}

// diff names the first block in which layers differ from those compared with.
func (r *Resolution) diff(who string, layers []format.Layer) string {
	other := map[string]string{"data": "the data holds", "--layers": "--layers wants", "config": "the config wants"}[r.Against]
	return firstDiff(who, layers, other, r.ref)
}

// readsAs names the trainers that read a list of the config as its writers mean it.
func (r *Resolution) readsAs(config Side) string {
	var names []string
	for _, s := range r.Sides {
		if s.Role == "trainer" && s.Key == config.Key && s.Convention == config.Convention && config.Key != "" {
			names = append(names, s.Name)
		}
	}
	if names == nil {
		return ""
	}
	return "as " + strings.Join(names, ", ") + " read it"
}

// tableRow is a line of the table, with notes that may take lines of their own.
type tableRow struct {
	name, place, convention string
	layers                  []format.Layer
	text                    string // in place of layers
	verdict                 string
	notes                   []string
	own                     string // a note that always has its own line
}

// Table is the resolution for people: --layers in both conventions, the data, the
// draft's config, then each server with what it reads and whether that is what the
// data holds. Trainers stand beside the list that they read. Lines are at most 100
// columns wide unless a list is longer, and each ends with a line feed.
func (r *Resolution) Table() string {
	var rows []tableRow
	if len(r.Wanted) > 0 {
		row := tableRow{name: "--layers", place: "-", convention: r.Convention.String(), layers: r.Wanted,
			notes: []string{"post " + format.Layers(r.Wanted).IDs(format.PostLayer) + " = boundary " + format.Layers(r.Wanted).IDs(format.Boundary)}}
		if r.Against == "data" {
			row.verdict = "ok"
			if !r.agrees(r.Wanted) {
				row.verdict = "MISMATCH"
				row.notes = append(row.notes, r.diff("--layers wants", r.Wanted))
			}
		}
		rows = append(rows, row)
	}
	rows = append(rows, r.dataRow())
	for _, s := range r.Sides {
		row := tableRow{name: s.Name, place: s.Place, convention: s.Convention.String(), layers: s.Layers, verdict: s.Verdict, notes: s.Notes, own: s.Write}
		switch {
		case s.Role == "trainer":
			continue
		case s.Role == "config":
			if as := r.readsAs(s); as != "" {
				row.notes = append(slices.Clone(row.notes), as)
			}
		case r.in.Config == nil:
			row.convention = "-"
		}
		if s.Place == "default" && s.Layers == nil {
			row.convention, row.text = "-", "-"
		}
		rows = append(rows, row)
	}
	return layOut(rows)
}

func (r *Resolution) dataRow() tableRow {
	row := tableRow{name: "data", place: "manifest", convention: "-", layers: r.Data}
	switch {
	case r.blocks.unknown:
		row.text, row.notes = fmt.Sprintf("%d unknown", r.blocks.n), []string{"ingested without --layers"}
	case len(r.in.Data.States) == 0:
		row.place, row.text = "-", "not given"
	}
	if r.Final != "" {
		row.notes = append(row.notes, "final "+r.Final)
	}
	return row
}

// layOut aligns the rows.
func layOut(rows []tableRow) string {
	const limit, indent = 100, "    "
	var cells []int // width of the i-th layer
	for _, row := range rows {
		for i, l := range row.layers {
			if i == len(cells) {
				cells = append(cells, 0)
			}
			cells[i] = max(cells[i], len(l.String()))
		}
	}
	var w [4]int
	for i := range rows {
		row := &rows[i]
		if row.text == "" {
			parts := make([]string, len(row.layers))
			for j, l := range row.layers {
				parts[j] = fmt.Sprintf("%-*s", cells[j], l)
			}
			row.text = strings.TrimRight(strings.Join(parts, " "), " ")
			if row.text == "" {
				row.text = "-"
			}
		}
		for j, s := range []string{row.name, row.place, row.convention, row.text} {
			w[j] = max(w[j], len(s))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := fmt.Sprintf("%-*s  %-*s  %-*s  %-*s  %-8s", w[0], row.name, w[1], row.place, w[2], row.convention, w[3], row.text, row.verdict)
		tail := ""
		if notes := strings.Join(row.notes, "; "); len(line)+2+len(notes) <= limit {
			line += "  " + notes
		} else {
			tail = notes
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, s := range []string{tail, row.own} {
			for s != "" {
				part := s
				if cut := limit - len(indent); len(s) > cut {
					if space := strings.LastIndexByte(s[:cut], ' '); space > 0 {
						part = s[:space]
					}
				}
				b.WriteString(indent + part + "\n")
				s = strings.TrimLeft(s[len(part):], " ")
			}
		}
	}
	return b.String()
}
