import messages from "messages:zh";
import strings from "strings:zh";

export default { strings, messages };
