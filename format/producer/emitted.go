package producer

import (
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
	}}
}
