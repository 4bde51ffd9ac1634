package producer

import (
	"strconv"

	"hsx/format"
)

// emitted is what [Emit] makes for "safetensors".
func emitted() []layout {
	return []layout{{
		name: "hsx", title: "hsx export, one tensor for each state", numbering: "layer_<k> is the output of layer k, layer_-1 the embedding",
		fits: func(v *view) (string, bool, error) {
			return factID + " in the metadata", v.meta[factID] != "", nil
		},
		gather: func(v *view) ([]parts, error) {
			all, err := gather(v)
			for i := range all {
				all[i].idKey, all[i].id = factID, v.meta[factID]
				// What is not written, or by somebody else in another way, stays unknown.
				all[i].norm, _ = format.ParseNorm(v.meta[factNorm])
			}
			return all, err
		},
		target: func(v *view) (format.Target, error) { return metaTarget(v.meta, v.facts.Target) },
	}}
}

// longestName bounds the name of a target, which ends in every manifest.
const longestName = 1024

// metaTarget is the target that the user names, completed by the metadata. Sizes that
// differ are refused; the user's name counts, since a config.json names the place that
// it was written for, if anything.
func metaTarget(meta map[string]string, user format.Target) (format.Target, error) {
	said := format.Target{Name: meta[factTarget]}
	if n := len(said.Name); n > longestName {
		return said, unsupported(factTarget, "is a name of %d bytes in the metadata, want at most %d", n, longestName)
	}
	for _, f := range []struct {
		key  string
		into *int
	}{{factTargetLayers, &said.Layers}, {factHiddenSize, &said.HiddenSize}, {factVocabSize, &said.VocabSize}} {
		text, ok := meta[f.key]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return said, unsupported(f.key, "is %s in the metadata, want a number above 0", label(text))
		}
		*f.into = int(n)
	}
	if what, meta, flag := said.Conflict(user); what != "" {
		return said, unsupported("", "metadata says that the target has %s %d, but its config (--target) says %d", what, meta, flag)
	}
	return user.Or(said), nil
}
