package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hsx/export"
	"hsx/format"
	"hsx/format/producer"
	"hsx/validate"
)

// exportLists works out what makes the tools read the layers that are exported.
type exportLists struct {
	layers         format.Layers
	trainer        producer.TargetDescription
	target         format.Target
	server, family string
}

// configPart is the lists of layer ids of a draft's config by their keys, with dots.
type configPart map[string][]int

// text is the config that has these lists and nothing else.
func (c configPart) text() []byte {
	doc := map[string]any{}
	for key, ids := range c {
		if outer, inner, ok := strings.Cut(key, "."); ok {
			object, _ := doc[outer].(map[string]any)
			if object == nil {
				object = map[string]any{}
				doc[outer] = object
			}
			object[inner] = ids
		} else {
			doc[key] = ids
		}
	}
	b, _ := json.MarshalIndent(doc, "", "  ") // integers in objects always have a JSON form
	return append(b, '\n')
}

// start is the config that tools are asked about: that of a draft whose lists do not stand
// where those of EAGLE-3 do, or none.
func (e *exportLists) start() configPart {
	if e.trainer.Strategy != "dflash" && e.trainer.Strategy != "dspark" {
		return configPart{}
	}
	ids := []int{}
	for _, l := range e.layers {
		ids = append(ids, format.PostLayer.ID(l))
	}
	return configPart{"dflash_config.target_layer_ids": ids}
}

// tool is the trainer or a server, and what makes it read the exported layers.
type tool struct {
	validate.Side
	name    string // with the family that it is for, when that of the target is not known
	trainer bool
}

// tools says what the trainer and the servers make of a config: those of the engine that
// --server names, or of all, in their current versions. The trainer is the first.
func (e *exportLists) tools(c configPart) ([]tool, error) {
	in := validate.ConfigInput{Target: e.target, Family: e.family}
	for _, l := range e.layers {
		in.Data.States = append(in.Data.States, format.State{Layer: l})
	}
	if len(c) > 0 {
		var err error
		if in.Config, err = validate.ParseConfig(c.text()); err != nil {
			return nil, err
		}
	}
	readers := map[string]validate.Reader{}
	for _, r := range validate.Readers() {
		readers[r.Name] = r
	}
	var out []tool
	res := validate.NewResolution(in)
	for _, s := range res.Sides {
		r, ok := readers[s.Name]
		meant := ok && (e.server == "" && !r.Old || r.Name == e.server || r.Engine == e.server && !r.Old)
		if r.Trainer {
			meant = r.Engine == e.trainer.Engine
		}
		if !meant {
			continue
		}
		t := tool{Side: s, name: s.Name, trainer: r.Trainer}
		if res.Family == "" && r.Family != "" {
			t.name += " (" + r.Family + ")"
		}
		if t.Verdict == "ok" { // as a config that it reads has it
			t.Fix = &validate.Fix{Key: t.Key, IDs: t.IDs}
			t.Write = t.Fix.String()
		}
		if t.trainer {
			out = slices.Insert(out, 0, t)
		} else {
			out = append(out, t)
		}
	}
	return out, nil
}

func idList(ids []int) string { return strings.ReplaceAll(fmt.Sprint(ids), " ", ",") }

// readers is what to write for each tool.
func (e *exportLists) readers() ([]export.Reader, error) {
	out := []export.Reader{}
	if len(e.layers) == 0 {
		return out, nil
	}
	tools, err := e.tools(e.start())
	for _, t := range tools {
		if t.Write != "" {
			out = append(out, export.Reader{Name: t.name, Write: t.Write})
		}
	}
	return out, err
}

// draftConfig is the part of a draft's config that makes the trainer and the server read
// the exported layers, or why no config can say that to both.
func (e *exportLists) draftConfig() ([]byte, error) {
	tools, err := e.tools(e.start())
	if err != nil {
		return nil, err
	}
	tools = slices.DeleteFunc(tools, func(t tool) bool {
		return e.server == "" && !t.trainer || t.Fix != nil && t.Fix.Argument != "" // not chosen, or looks at no config
	})
	if len(tools) == 0 || len(e.layers) == 0 {
		return nil, errors.New("there are no layers, or no tool is named that reads them from a config: choose a --server")
	}
	c, from := e.start(), map[string]string{}
	for _, t := range tools {
		if t.Fix == nil {
			return nil, fmt.Errorf("%s: %s", t.name, t.Write)
		}
		key, ids := t.Fix.Key, t.Fix.IDs
		if have, ok := c[key]; ok && !slices.Equal(have, ids) {
			return nil, fmt.Errorf("no config suits both: %s wants %s: %s, and %s %s (write one for each; --target or --family says which family it is)",
				from[key], key, idList(have), t.name, idList(ids))
		}
		c[key], from[key] = ids, t.name
	}
	// A list that one of them wants may be read by another, before its own.
	again, err := e.tools(c)
	for _, t := range again {
		chosen := slices.ContainsFunc(tools, func(u tool) bool { return u.name == t.name })
		if chosen && t.Verdict != "ok" {
			return nil, fmt.Errorf("no config suits all: with the lists of the others, %s reads %s", t.name, format.Layers(t.Layers))
		}
	}
	return c.text(), err
}
