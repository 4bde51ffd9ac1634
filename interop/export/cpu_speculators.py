"""`python -m speculators.train`, on a machine without an accelerator, where its trainer would ask for CUDA."""
import torch
from speculators.train import cli, trainer
from speculators.train.config import TrainConfig


class OnCPU(trainer.Trainer):
    def setup_trainer(self):
        self.device_type = self.local_rank = "cpu"
        super().setup_trainer()


torch.accelerator.synchronize = lambda: None  # of its timer
cli.Trainer = OnCPU
cli.main(TrainConfig.resolve())
