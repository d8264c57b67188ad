import { render } from "preact";
import "styles";
import { Shell } from "./shell";

render(<Shell />, document.getElementById("app")!);
