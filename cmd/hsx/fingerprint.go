package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hsx/validate"
)

func newFingerprintCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "fingerprint --out FILE DS",
		Short: "Write how each layer of a target looks, for validate --reference",
		Long: `Write mean and spread of each channel of each layer in a dataset, as a reference that
'hsx validate --reference' tells layers apart by. The dataset should be of a trusted
dump of all layers: a few hundred tokens from each of a few texts are enough.`,
		Example: "  hsx ingest --out all --layers 0,1,2,3,4 --target config.json trusted/\n  hsx fingerprint --out target.json all\n  hsx validate --reference target.json ds",
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("--out is missing: name the file")
			}
			if err := placeFor(cmd.Context(), "--out", out); err != nil {
				return err
			}
			ds, err := openDataset(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var data []byte
			var ref *validate.Reference
			err = guarded(func() (err error) {
				if ref, err = validate.MakeReference(cmd.Context(), ds); err == nil {
					data, err = ref.Encode()
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("fingerprint %s: %w", args[0], err)
			}
			if err := writeFile(cmd.Context(), out, data); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %s of %s, from %s\n", out,
				count(int64(len(ref.States)), "state"), orUnknown(printable(ref.Target.Name)), count(ref.Rows, "row"))
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the file to write")
	return cmd
}
