/** A request to the server. */

/** An error that the server reports, with its text. */
export class RequestError extends Error {
  constructor(
    message: string,
    readonly kind: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export async function request(path: string, options?: RequestInit): Promise<Response> {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new RequestError(body.error ?? `${answer.status} ${answer.statusText}`, body.kind ?? "server", answer.status);
}
