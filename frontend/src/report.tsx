/** The pages in one file that contains the tables. */
import { render } from "preact";
import "styles";
import { Shell } from "./shell";
import { setSource } from "./source";
import { isPlace } from "./place";
import { language } from "./state";
import { ReportSource } from "./report_source";
import { loadPageStrings, loadStrings } from "./strings";

const source = new ReportSource();
setSource(source);
Object.assign(window, { reportSource: source }); // for the console
if (!location.hash || !isPlace(location.hash)) location.hash = source.start;
void loadStrings(language())
  .then(() => loadPageStrings())
  .then(() => render(<Shell />, document.getElementById("app")!));
