"""The five convolutional networks of the paper (table 1)."""

from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.shapes import Shape, described, is_image
from pfedes.errors import ModelError
from pfedes.models.convolution import ImageConv2d

REPRESENTATION = 500


class CNN(nn.Module):
    """The networks of the paper: two convolutions and three linear layers.

    CNN-1 to CNN-5 differ in `conv2` and `fc1` only.

    Args:
        classes: Number of classes.
        shape: Shape of one image, (channels, height, width), 16x16 pixels or more.
        conv2: Channels of the second convolution.
        fc1: Outputs of the first linear layer.
        representation: Outputs of the second linear layer.

    Raises:
        ModelError: The shape is not that of an image, or too small.
    """

    def __init__(
        self,
        classes: int,
        shape: Shape,
        *,
        conv2: int,
        fc1: int,
        representation: int = REPRESENTATION,
    ) -> None:
        super().__init__()
        if not is_image(shape):
            raise ModelError(f"a CNN is for images, the inputs are {described(shape)}")
        channels, height, width = shape
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        if rows < 1 or columns < 1:
            raise ModelError(f"images of {height}x{width} are too small for a CNN: 16x16 at least")
        self.conv1 = ImageConv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, conv2, 5)
        self.fc1 = nn.Linear(conv2 * rows * columns, fc1)
        self.fc2 = nn.Linear(fc1, representation)
        self.fc3 = nn.Linear(representation, classes)

    def represent(self, x: Tensor) -> Tensor:
        """Computes the representation that the last layer classifies.

        Args:
            x: Images, (n, channels, height, width).

        Returns:
            One row of numbers for each image.
        """
        # The greatest is the same before and after ReLU; after it, a quarter is left to go through.
        x = F.relu(F.max_pool2d(self.conv1(x), 2), inplace=True)
        x = F.relu(F.max_pool2d(self.conv2(x), 2), inplace=True)
        x = F.relu(self.fc1(x.flatten(1)), inplace=True)
        return F.relu(self.fc2(x), inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Computes the logits.

        Args:
            x: Images, (n, channels, height, width).

        Returns:
            Logits, (n, classes).
        """
        logits: Tensor = self.fc3(self.represent(x))
        return logits
